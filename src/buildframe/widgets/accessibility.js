// Sets ARIA attributes, handles Escape and moves the focus, which ipywidgets cannot do.
const ALLOWED = /^(role|aria-[a-z]+)$/;

function render({ model, el }) {
  const box = () => el.closest(".bf-accessible");
  const isUsable = (element) => element !== null && !element.disabled && element.getClientRects().length > 0;
  el.style.display = "none";

  function setAttributes() {
    for (const [selector, attributes] of Object.entries(model.get("attributes"))) {
      const own = box()?.matches(selector) ? [box()] : [];
      for (const element of [...own, ...(box()?.querySelectorAll(selector) ?? [])]) {
        for (const [name, value] of Object.entries(attributes)) {
          if (ALLOWED.test(name) && element.getAttribute(name) !== value) element.setAttribute(name, value);
        }
      }
    }
  }

  // Move the focus only if it is in this box or nowhere: never away from what the user does elsewhere.
  const mayMoveFocus = () => document.activeElement?.contains(el) || box().contains(document.activeElement);

  function moveFocus(selector, tries = 60) { // the element may not be on the page yet
    const element = box()?.querySelector(selector) ?? null;
    if (isUsable(element)) { if (mayMoveFocus()) element.focus(); }
    else if (tries) requestAnimationFrame(() => moveFocus(selector, tries - 1));
  }

  function onKeydown(event) {
    const selector = model.get("escape"), parent = box();
    if (event.key !== "Escape" || !selector || !parent?.contains(event.target)) return;
    const button = parent.querySelector(selector);
    if (!isUsable(button)) return;
    event.preventDefault();
    event.stopPropagation();
    button.click();
  }

  const onMessage = ({ focus }) => moveFocus(focus);
  const observer = new MutationObserver(setAttributes); // the elements of a box are added one after the other
  const observe = (tries) => {
    if (box()) { setAttributes(); observer.observe(box(), { childList: true, subtree: true }); }
    else if (tries) requestAnimationFrame(() => observe(tries - 1));
  };
  observe(600);
  window.addEventListener("keydown", onKeydown, true);
  model.on("change:attributes", setAttributes);
  model.on("msg:custom", onMessage);
  return () => {
    observer.disconnect();
    window.removeEventListener("keydown", onKeydown, true);
    model.off("change:attributes", setAttributes);
    model.off("msg:custom", onMessage);
  };
}

export default { render };
