// A replacement of Worker for pages that are opened from a file: there, browsers refuse workers.
// The script runs in a hidden frame instead. Only what the theme's search uses is there.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inner = frame.contentWindow
      this.ready = new Promise(resolve => {
        const script = frame.contentDocument.createElement("script")
        inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
        inner.importScripts = (...urls) => urls.reduce(
          (before, each) => before.then(() => new Promise((done, failed) => {
            const loaded = frame.contentDocument.createElement("script")
            Object.assign(loaded, { src: each, onload: done, onerror: failed })
            frame.contentDocument.body.appendChild(loaded)
          })), Promise.resolve())
        Object.assign(script, { src: url, onload: resolve })
        frame.contentDocument.body.appendChild(script)
      })
      this.inner = inner
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {}
  }
}
