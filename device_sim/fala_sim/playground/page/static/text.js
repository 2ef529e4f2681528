// Formats numbers for people, and makes elements with one call.

export const number = (value, digits) => value.toFixed(digits);

/** Make an element with attributes and children; texts are set as texts, never as markup. */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
