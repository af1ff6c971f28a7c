'use strict';
// What the pages of this program share: elements, buttons, the clipboard. Text from outside goes
// through textContent alone.

const $ = (id) => document.getElementById(id);

function element(name, text, parent, className) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  if (parent) parent.append(e);
  return e;
}

function button(text, parent, press, className) {
  const b = element('button', text, parent, className);
  b.type = 'button';
  b.addEventListener('click', press);
  return b;
}

// copy puts text on the clipboard, and says so on what was pressed.
async function copy(text, pressed) {
  const before = pressed.textContent;
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element('textarea', text, document.body, 'away');
    area.select();
    done = document.execCommand('copy');
    area.remove();
    pressed.focus();
  }
  pressed.textContent = done ? 'Copied' : 'Not copied';
  setTimeout(() => { pressed.textContent = before; }, 1500);
}
