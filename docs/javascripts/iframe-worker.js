// The search runs in a worker, and browsers start none for a page that was opened from the disk.
// There a hidden frame takes its place: same code, same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const page = frame.contentDocument;
      page.open(); // what a browser would load into an empty frame later, and drop the script
      page.write("<!doctype html><body></body>");
      page.close();
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
      const element = page.createElement("script");
      element.src = script;
      this.loaded = new Promise((done) => element.addEventListener("load", done));
      page.body.append(element);
    }

    postMessage(data) {
      const event = () => new MessageEvent("message", { data: structuredClone(data) });
      this.loaded.then(() => this.inside.dispatchEvent(event()));
    }
  };
}
