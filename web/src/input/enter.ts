/** Whether a press of Enter means "send", and not "take this candidate" of an input method. */

export class EnterKey {
  #isComposing = false;

  compositionStarted(): void {
    this.#isComposing = true;
  }

  /** Some browsers tell the Enter that ended a composition right after its end, so the flag lasts one task more. */
  compositionEnded(): void {
    setTimeout(() => void (this.#isComposing = false));
  }

  sends(event: KeyboardEvent): boolean {
    if (event.key !== "Enter" || event.shiftKey || event.altKey) return false;
    // Safari says keyCode 229, and nothing else, for a key that the input method has taken.
    return !(this.#isComposing || event.isComposing || event.keyCode === 229);
  }
}
