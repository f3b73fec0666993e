/** Keys that work anywhere on the page. */

import type { App } from "../state/app.svelte";

export interface PageActions {
  search(): void;
  toggleSidebar(): void;
}

const isMac = /Mac|iPhone|iPad/.test(navigator.userAgent);

/** What is printed on the key that starts a shortcut. */
export const COMMAND_KEY = isMac ? "⌘" : "Ctrl";

export function handleShortcut(event: KeyboardEvent, app: App, page: PageActions): void {
  const action = actionOf(event, app, page);
  if (!action) return;
  event.preventDefault();
  action();
}

function actionOf(event: KeyboardEvent, app: App, page: PageActions): (() => void) | null {
  if (event.isComposing || document.querySelector("dialog[open]")) return null;
  if (event.key === "Escape") return app.chat.isAnswering ? () => app.chat.stop() : null;
  if (event.key === "/" && !isTyping(event.target)) return focusComposer;
  if (!(isMac ? event.metaKey : event.ctrlKey) || event.altKey) return null;
  return commandOf(event, app, page);
}

function commandOf({ key, shiftKey }: KeyboardEvent, app: App, page: PageActions): (() => void) | null {
  switch (shiftKey ? `Shift+${key.toUpperCase()}` : key) {
    case "k":
      return () => page.search();
    case "b":
      return () => page.toggleSidebar();
    case ",":
      return () => void (app.dialog = "settings");
    case "/":
      return () => void (app.dialog = "shortcuts");
    case "Shift+O":
      return () => {
        app.openNew();
        focusComposer();
      };
    case "Shift+C":
      return () => copyLastAnswer(app);
    default:
      return null;
  }
}

export function focusComposer(): void {
  document.querySelector<HTMLElement>("#composer")?.focus();
}

function copyLastAnswer({ chat }: App): void {
  const answer = chat.path.findLast(({ role }) => role === "assistant");
  if (answer) void navigator.clipboard.writeText(answer.text);
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
}
