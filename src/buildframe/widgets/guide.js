// What ipywidgets has no words for: attributes for screen readers, Escape, and a focus that comes back.
const ALLOWED = /^(role|aria-[a-z]+)$/;

function render({ model, el }) {
  const face = () => el.closest(".bf-guided");
  const isThere = (part) => part !== null && !part.disabled && part.getClientRects().length > 0;
  el.style.display = "none";

  function mark() {
    for (const [selector, attributes] of Object.entries(model.get("attributes"))) {
      for (const part of face()?.querySelectorAll(selector) ?? []) {
        for (const [name, value] of Object.entries(attributes)) {
          if (ALLOWED.test(name) && part.getAttribute(name) !== value) part.setAttribute(name, value);
        }
      }
    }
  }

  // The focus moves only from this face, or from where nothing has it: never from what one is doing elsewhere.
  const isFree = () => document.activeElement?.contains(el) || face().contains(document.activeElement);

  function lead(selector, tries = 60) { // what it leads to may be on its way to the page
    const part = face()?.querySelector(selector) ?? null;
    if (isThere(part)) { if (isFree()) part.focus(); }
    else if (tries) requestAnimationFrame(() => lead(selector, tries - 1));
  }

  function press(event) {
    const selector = model.get("escape"), box = face();
    if (event.key !== "Escape" || !selector || !box?.contains(event.target)) return;
    const part = box.querySelector(selector);
    if (!isThere(part)) return;
    event.preventDefault();
    event.stopPropagation();
    part.click();
  }

  const told = ({ focus }) => lead(focus);
  const watch = new MutationObserver(mark); // parts of a face come to the page one after the other
  const begin = (tries) => {
    if (face()) { mark(); watch.observe(face(), { childList: true, subtree: true }); }
    else if (tries) requestAnimationFrame(() => begin(tries - 1));
  };
  begin(600);
  window.addEventListener("keydown", press, true);
  model.on("change:attributes", mark);
  model.on("msg:custom", told);
  return () => {
    watch.disconnect();
    window.removeEventListener("keydown", press, true);
    model.off("change:attributes", mark);
    model.off("msg:custom", told);
  };
}

export default { render };
