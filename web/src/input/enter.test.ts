import { describe, expect, it } from "vitest";
import { EnterKey } from "./enter";

const press = (init: KeyboardEventInit = {}): KeyboardEvent => new KeyboardEvent("keydown", { key: "Enter", ...init });

describe("EnterKey", () => {
  it("sends on Enter alone", () => {
    expect(new EnterKey().sends(press())).toBe(true);
    expect(new EnterKey().sends(press({ shiftKey: true }))).toBe(false);
    expect(new EnterKey().sends(press({ key: "a" }))).toBe(false);
  });

  it("leaves Enter to an input method", () => {
    expect(new EnterKey().sends(press({ isComposing: true }))).toBe(false);
    expect(new EnterKey().sends(press({ keyCode: 229 } as KeyboardEventInit))).toBe(false);
  });

  it("ignores the Enter that ended a composition, and takes the next one", async () => {
    const enter = new EnterKey();
    enter.compositionStarted();
    expect(enter.sends(press())).toBe(false);
    enter.compositionEnded();
    expect(enter.sends(press())).toBe(false);
    await new Promise((resolve) => setTimeout(resolve));
    expect(enter.sends(press())).toBe(true);
  });
});
