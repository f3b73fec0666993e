/**
 * Keeps a growing list at its end for as long as its reader wants that.
 *
 * Only the reader unpins it: wheel, finger, keys or scroll bar moving up. How far away the end is says nothing, for a
 * tall block that arrives at once moves the end by as much as a reader would. Scrolling down to the end pins again.
 */

const AT_END_PX = 4;
const KEYS_UP = new Set(["ArrowUp", "PageUp", "Home"]);

export class PinnedScroll {
  readonly #scroller: HTMLElement;
  readonly #onPinned: (isPinned: boolean) => void;
  #isPinned = true;
  #lastTop = 0;
  #touchY = 0;
  #isDragging = false;

  constructor(scroller: HTMLElement, onPinned: (isPinned: boolean) => void) {
    this.#scroller = scroller;
    this.#onPinned = onPinned;
  }

  /** Listens to the reader and to the size of `content`; answers how to end it. */
  attach(content: HTMLElement): () => void {
    const ending = new AbortController();
    const options = { passive: true, signal: ending.signal };
    const scroller = this.#scroller;
    scroller.addEventListener("wheel", ({ deltaY }) => deltaY < 0 && this.#leave(), options);
    scroller.addEventListener("touchstart", (event) => void (this.#touchY = yOf(event)), options);
    scroller.addEventListener("touchmove", (event) => this.#touched(yOf(event)), options);
    scroller.addEventListener("keydown", (event) => this.#pressed(event), options);
    // A press on the scroller itself, and not on something in it, is one on its scroll bar.
    scroller.addEventListener("pointerdown", ({ target }) => void (this.#isDragging = target === scroller), options);
    window.addEventListener("pointerup", () => void (this.#isDragging = false), options);
    scroller.addEventListener("scroll", () => this.#scrolled(), options);
    const sizes = new ResizeObserver(() => this.follow());
    sizes.observe(content);
    sizes.observe(scroller);
    return () => {
      ending.abort();
      sizes.disconnect();
    };
  }

  /** Go to the end and stay there. */
  pin(): void {
    this.#set(true);
    this.follow();
  }

  /** Something may have grown. */
  follow(): void {
    if (this.#isPinned) this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }

  #touched(y: number): void {
    if (y > this.#touchY) this.#leave();
    this.#touchY = y;
  }

  #pressed({ key, shiftKey, target }: KeyboardEvent): void {
    const isTyping = target instanceof HTMLTextAreaElement || target instanceof HTMLInputElement;
    if (!isTyping && (KEYS_UP.has(key) || (key === " " && shiftKey))) this.#leave();
  }

  #scrolled(): void {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    const isDown = scrollTop > this.#lastTop;
    if (this.#isDragging && scrollTop < this.#lastTop) this.#leave();
    this.#lastTop = scrollTop;
    if (isDown && scrollHeight - clientHeight - scrollTop <= AT_END_PX) this.#set(true);
  }

  /** Up is a way out only where there is an up. */
  #leave(): void {
    if (this.#scroller.scrollTop > 0) this.#set(false);
  }

  #set(isPinned: boolean): void {
    if (isPinned === this.#isPinned) return;
    this.#isPinned = isPinned;
    this.#onPinned(isPinned);
  }
}

function yOf(event: TouchEvent): number {
  return event.touches[0]?.clientY ?? 0;
}
