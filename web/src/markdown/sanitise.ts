/** The last gate before model output becomes DOM: what is not on these lists is dropped. */

import DOMPurify from "dompurify";

const ALLOWED_TAGS = [
  ...["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li"],
  ...["table", "thead", "tbody", "tr", "th", "td"],
  ...["a", "strong", "em", "s", "code", "pre", "span", "div", "button"],
];

// Pictures are not among the tags: fetching one would tell its host what the chat is about.
const PLAIN_ATTR = ["title", "class", "dir", "start", "target", "rel", "type", "data-copy", "data-align"];

const ALLOWED_URI = /^(?:https?:|mailto:)/i;

/** HTML that can run nothing and fetches nothing until the reader clicks. */
export function sanitise(html: string): string {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS,
    ALLOWED_ATTR: ["href", ...PLAIN_ATTR],
    ADD_URI_SAFE_ATTR: PLAIN_ATTR,
    ALLOWED_URI_REGEXP: ALLOWED_URI,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
  });
}
