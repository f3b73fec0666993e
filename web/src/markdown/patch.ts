/** Makes a live element show new HTML by changing only what differs, so that selection and scroll positions survive. */

/** `html` must be sanitised. */
export function patchHtml(element: Element, html: string): void {
  const template = document.createElement("template");
  template.innerHTML = html;
  patchChildren(element, template.content);
}

function patchChildren(target: Element, source: ParentNode & Node): void {
  const wanted = [...source.childNodes];
  wanted.forEach((node, index) => {
    const current = target.childNodes[index];
    if (!current) target.append(node);
    else patchNode(current, node);
  });
  while (target.childNodes.length > wanted.length) target.lastChild!.remove();
}

function patchNode(current: ChildNode, wanted: ChildNode): void {
  if (current.isEqualNode(wanted)) return;
  if (current instanceof Text && wanted instanceof Text) patchText(current, wanted.data);
  else if (current instanceof Element && wanted instanceof Element && haveSameTag(current, wanted)) {
    patchChildren(current, wanted);
  } else current.replaceWith(wanted);
}

/** Appending keeps a selection inside the text; replacing would drop it. */
function patchText(current: Text, wanted: string): void {
  if (wanted.startsWith(current.data)) current.appendData(wanted.slice(current.length));
  else current.data = wanted;
}

function haveSameTag(one: Element, other: Element): boolean {
  const names = one.getAttributeNames();
  return (
    one.tagName === other.tagName &&
    names.length === other.getAttributeNames().length &&
    names.every((name) => one.getAttribute(name) === other.getAttribute(name))
  );
}
