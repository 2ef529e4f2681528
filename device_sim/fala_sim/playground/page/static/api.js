// The server: acts, and news of the walk. The token comes in the address's fragment, which no
// browser sends, and is kept for this tab, so that it survives a reload.

const KEPT = "fala token";
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) {
  sessionStorage.setItem(KEPT, token);
  history.replaceState(null, "", location.pathname);
}
// An address of a later start, opened in the same tab, changes the fragment alone.
addEventListener("hashchange", () => location.reload());

const headers = () => ({ Authorization: `Bearer ${sessionStorage.getItem(KEPT) ?? ""}` });

async function answer(response) {
  const content = await response.json();
  if (!response.ok) {
    throw Object.assign(new Error(content.error), { status: response.status });
  }
  return content;
}

/**
 * Do an act of the walk; its answer, and the version of the view that shows it. A mistake is an Error
 * with a status, a silence is without.
 */
export async function act(name, body = {}) {
  const response = await fetch(`api/${name}`, {
    method: "POST",
    headers: { ...headers(), "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return answer(response);
}

export const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

/** Tell of every change, for as long as the page is open: a view, or the error of its absence. */
export async function follow(changed, absent) {
  for (let after = ""; ;) {
    try {
      const response = await fetch(`api/state?after=${after}`, { headers: headers() });
      const view = await answer(response);
      after = view.version;
      changed(view);
    } catch (error) {
      after = "";
      absent(error);
      await pause(1);
    }
  }
}
