// Numbers as people read them, and elements by one call.

export const hundredths = (part) => `${Math.round(100 * part)} %`;

export const number = (value, digits) => value.toFixed(digits);

/** A figure between 0 and 1, in as few letters as a narrow column needs. */
export const share = (value) => value.toFixed(3).replace(/^0/, "");

/** An element with attributes and children; texts are set as texts, never as markup. */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
