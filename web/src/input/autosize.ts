/** A text field as tall as its text, in browsers whose style sheets cannot say so. */

import type { Attachment } from "svelte/attachments";

const isBuiltIn = typeof CSS !== "undefined" && CSS.supports("field-sizing", "content");

/** `text` is read so that the height follows it. */
export function autosize(text: () => string): Attachment<HTMLTextAreaElement> {
  return (field) => {
    if (isBuiltIn || text() === undefined) return;
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight}px`;
  };
}
