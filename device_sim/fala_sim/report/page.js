"use strict";
// Sort a table by a column: the first click from small to large, the next the other way.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      const rows = [...body.rows].map((row) => {
        const cell = row.cells[column];
        const order = cell.dataset.order;
        return { row, text: cell.textContent.trim(), value: order ? Number(order) : null };
      });
      rows.sort((a, b) => {
        // Cells without a number come last, whichever way.
        if ((a.value === null) !== (b.value === null)) return a.value === null ? 1 : -1;
        const difference = a.value === null ? a.text.localeCompare(b.text) : a.value - b.value;
        return falling ? -difference : difference;
      });
      // Lines between data sets belong to the first order.
      rows.forEach((entry) => entry.row.classList.remove("first"));
      body.append(...rows.map((entry) => entry.row));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    });
  });
}

// Say of a table that is wider than the screen that it scrolls, and to which side there is more.
const frames = [...document.querySelectorAll(".scroll")];
const mark = (frame) => {
  const hidden = frame.scrollWidth - frame.clientWidth;
  frame.querySelector(".wide").hidden = hidden <= 1;
  frame.classList.toggle("more-left", frame.scrollLeft > 1);
  frame.classList.toggle("more-right", hidden - frame.scrollLeft > 1);
};
const seen = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target)));
for (const frame of frames) {
  frame.addEventListener("scroll", () => mark(frame), { passive: true });
  seen.observe(frame);
}
