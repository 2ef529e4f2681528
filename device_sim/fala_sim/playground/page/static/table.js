// The unseen posts with every model's answer. Rows are made once, and then their values change in
// place, so that bars move and the focus stays where it is.

import { element } from "./text.js";

const TITLES = {
  old: "Old personal model",
  vendor: "New model alone",
  instant: "FaLA, no forward pass",
};

/** Return a column's title. */
export function title(key, view) {
  if (view.columns.length === 1) return view.labelled ? "Personal model" : "Model without personalization";
  if (key !== "mine") return TITLES[key];
  if (view.stage === "rolled back") return "Old personal model (active again)";
  return view.passes ? `FaLA, ${view.passes} forward passes` : TITLES.instant;
}

export const shows = { differing: false }; // whether only posts on which the models differ are shown

let shape = "";
let rows = [];

/** Show the posts of a view. `check` is called with a post and the user's label. */
export function showTable(table, view, check) {
  const keys = view.columns.map((column) => column.key);
  if (keys.length === 1) shows.differing = false;
  const posts = shows.differing ? view.differing : view.posts;
  const labelling = view.who !== "reader";
  const wanted = `${keys} ${labelling} ${posts.map((post) => post.text)}`;
  if (wanted !== shape) {
    shape = wanted;
    build(table, posts, view, labelling, check);
  }
  heads(table, view);
  posts.forEach((post, at) => fill(rows[at], post, view, labelling));
}

function build(table, posts, view, labelling, check) {
  const keys = view.columns.map((column) => column.key);
  table.classList.toggle("alone", keys.length === 1);
  rows = posts.map((post) => row(post, keys, labelling, check));
  fillTable(table, view, "Post", rows.map((one) => one.line));
}

/** Fill a table with a head for the models' titles, and with rows. */
function fillTable(table, view, first, lines) {
  table.style.setProperty("--columns", view.columns.length);
  const names = view.columns.map(() => element("th", { role: "columnheader", scope: "col" }));
  const corner = element("th", { role: "columnheader", scope: "col", class: "corner" }, first);
  table.setAttribute("role", "table");
  table.replaceChildren(
    element("thead", { role: "rowgroup" }, element("tr", { role: "row", class: "titles" }, corner, ...names)),
    element("tbody", { role: "rowgroup" }, ...lines),
  );
}

function heads(table, view) {
  view.columns.forEach((column, at) => { table.tHead.rows[0].cells[1 + at].textContent = title(column.key, view); });
}

/** Show each model's error rate. */
export function showFigures(table, view) {
  table.hidden = view.columns.length === 1 || !view.tested;
  const name = element("th", { role: "rowheader", scope: "row", class: "corner" }, "Error rate");
  const cells = view.columns.map((column) => element(
    "td", { role: "cell" }, element("strong", {}, `${column.error_rate} %`), ` (${column.wrong} of ${view.tested})`));
  fillTable(table, view, "Model", [element("tr", { role: "row" }, name, ...cells)]);
  heads(table, view);
}

function row(post, keys, labelling, check) {
  const labels = element("span", { class: "said" });
  const buttons = [];
  if (labelling) {
    labels.append("Your label:");
    ["fine", "unwelcome"].forEach((word, label) => {
      const button = element("button", { type: "button", "aria-label": `Your label ${word}: ${post.text}` }, word);
      button.addEventListener("click", () =>
        check(post.post, button.getAttribute("aria-pressed") === "true" ? null : label));
      buttons.push(button);
      labels.append(button);
    });
  }
  const name = element("th", { role: "rowheader", scope: "row", "aria-label": post.text }, post.text, labels);
  const cells = Object.fromEntries(keys.map((key) => [key, cell()]));
  const line = element("tr", { role: "row" }, name, ...keys.map((key) => cells[key].cell));
  return { line, cells, labels, buttons };
}

/** Make a cell for an answer: right or wrong, the decision, and its probability as a number and a bar. */
export function cell(tag = "td", role = "cell") {
  const mark = element("span", { "aria-hidden": "true" });
  const decision = element("strong");
  const sure = element("span", { class: "sure" });
  const word = element("span", { class: "unseen" });
  const bar = element("div", { class: "bar", "aria-hidden": "true" }, element("i"));
  const answer = element(tag, { role, class: "answer" }, mark, decision, " ", sure, word, bar);
  return { cell: answer, mark, decision, sure, word, bar };
}

/**
 * Show an answer.
 * @param lean A model's certainty: above 0 (up to 1) that the post is unwelcome, below 0 (down to -1) that it is fine.
 * @param label The label of the reader or the user, if there is one.
 */
export function fillCell(parts, lean, label = null) {
  const muted = lean > 0;
  const right = label !== null && muted === (label === 1);
  const wrong = label !== null && !right;
  parts.cell.classList.toggle("right", right);
  parts.cell.classList.toggle("wrong", wrong);
  parts.mark.textContent = right ? "✓ " : wrong ? "✕ " : "";
  parts.decision.textContent = muted ? "muted" : "shown";
  // At most 99, because no model is certain.
  parts.sure.textContent = `${Math.min(99, Math.round(50 + 50 * Math.abs(lean)))} % probable`;
  parts.word.textContent = right ? ", right" : wrong ? ", wrong" : "";
  parts.bar.style.setProperty("--from", Math.min(0, lean));
  parts.bar.style.setProperty("--part", Math.abs(lean));
}

function fill(row, post, view, labelling) {
  if (labelling) {
    row.buttons.forEach((button, label) => button.setAttribute("aria-pressed", post.label === label));
  } else {
    row.labels.textContent = `The reader's label: ${post.label ? "unwelcome" : "fine"}`;
  }
  for (const column of view.columns) fillCell(row.cells[column.key], post.lean[column.key], post.label);
}
