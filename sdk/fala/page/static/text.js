// Numbers as people read them, and elements by one call.

export const hundredths = (part) => `${Math.round(100 * part)} %`;

export const number = (value, digits) => value.toFixed(digits);

/** An element with attributes and children; texts are set as texts, never as markup. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
