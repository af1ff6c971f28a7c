'use strict';
// Markdown of a model as elements. Its text goes through textContent alone: none of it is markup of this page.

const deepest = 12; // parts inside of parts; below that text is shown as it is
const linked = /\[([^[\]\n]+)\]\(([^\s()]+)\)/y; // looks at no character from two beginnings: lines may be long

// closing is where a mark that opens at i ends; -1: nowhere, which none remembers, so that no text is searched twice.
function closing(text, mark, i, none) {
  if (none.has(mark)) return -1;
  for (let at = text.indexOf(mark, i + mark.length + 1); at >= 0; at = text.indexOf(mark, at + 1)) {
    const code = mark[0] === '`', alone = text[at - 1] !== mark[0] && text[at + mark.length] !== mark[0];
    if (alone && (code || /\S/.test(text[at - 1]))) return at;
    if (!alone) while (text[at + 1] === mark[0]) at++;
  }
  none.add(mark);
  return -1;
}

// inline appends a line's code, emphasis and links to parent.
function inline(text, parent, depth = 0) {
  if (depth > deepest) return parent.append(text);
  const none = new Set();
  let from = 0, i = 0;
  const put = (end, build) => { parent.append(text.slice(from, i)); build(); from = i = end; };
  while (i < text.length) {
    const c = text[i];
    if (c !== '`' && c !== '*' && c !== '[') { i++; continue; }
    if (c === '[') {
      linked.lastIndex = i;
      const m = linked.exec(text);
      if (!m || !/^https?:\/\//i.test(m[2])) { i++; continue; }
      put(i + m[0].length, () => { const a = element('a', m[1], parent); a.href = m[2]; a.target = '_blank'; a.rel = 'noopener noreferrer'; });
      continue;
    }
    let n = 1;
    while (text[i + n] === c) n++;
    const mark = c.repeat(n), end = n > 2 && c === '*' || c === '*' && !/\S/.test(text[i + n] ?? ' ') ? -1 : closing(text, mark, i, none);
    if (end < 0) { i += n; continue; }
    const inner = text.slice(i + n, end);
    put(end + n, () => { if (c === '`') element('code', inner.trim(), parent); else inline(inner, element(n === 2 ? 'strong' : 'em', undefined, parent), depth + 1); });
  }
  parent.append(text.slice(from));
}

// block is code, with its language and a button that copies it.
function block(language, code, parent) {
  const box = element('div', undefined, parent, 'block'), head = element('div', undefined, box);
  element('span', language || 'code', head);
  const b = element('button', 'Copy', head);
  b.type = 'button';
  b.addEventListener('click', () => copy(code, b));
  const pre = element('pre', undefined, box);
  pre.tabIndex = 0;
  element('code', code, pre);
}

const starts = [/^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]*).*$/, /^\s{0,3}(#{1,6})\s(.*)$/, /^\s{0,3}>\s?(.*)$/, /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/, /^\s{0,3}([-*_])(\s*\1){2,}\s*$/];

// title is a heading's text without the # behind it. Written out: an expression would try each run of spaces from each of its places.
function title(text) {
  text = text.trim();
  let n = text.length;
  while (n > 0 && text[n - 1] === '#') n--;
  return text.slice(0, n).trim();
}

// cells are those of a table's line.
const cells = (line) => line.trim().replace(/^\||\|$/g, '').split('|').map((c) => c.trim());

// markdown puts a text into parent, anew.
function markdown(text, parent) {
  parent.replaceChildren();
  blocks(text.split('\n'), parent);
}

function blocks(lines, parent, depth = 0) {
  if (depth > deepest) return parent.append(lines.join('\n'));
  for (let i = 0; i < lines.length;) {
    const line = lines[i], fence = starts[0].exec(line), heading = starts[1].exec(line);
    if (!line.trim()) i++;
    else if (fence) {
      let end = i + 1;
      while (end < lines.length && !(lines[end].trim().startsWith(fence[1]) && !lines[end].trim().slice(fence[1].length).trim())) end++;
      block(fence[2], lines.slice(i + 1, end).join('\n'), parent);
      i = end + 1;
    } else if (heading) {
      inline(title(heading[2]), element(heading[1].length < 3 ? 'h3' : 'h4', undefined, parent));
      i++;
    } else if (starts[4].test(line)) {
      element('hr', undefined, parent);
      i++;
    } else if (starts[2].test(line)) {
      const inner = [];
      for (; i < lines.length && starts[2].test(lines[i]); i++) inner.push(starts[2].exec(lines[i])[1]);
      blocks(inner, element('blockquote', undefined, parent), depth + 1);
    } else if (starts[3].test(line)) i = list(lines, i, parent, depth);
    else if (line.includes('|') && cells(lines[i + 1] ?? '').every((c) => /^:?-+:?$/.test(c))) i = grid(lines, i, parent);
    else {
      const first = i++;
      while (i < lines.length && lines[i].trim() && !starts.some((s) => s.test(lines[i]))) i++;
      inline(lines.slice(first, i).join('\n'), element('p', undefined, parent));
    }
  }
}

// list reads items from line i on, with what is indented below them, and gives the line behind.
function list(lines, i, parent, depth) {
  const [, indent, mark] = starts[3].exec(lines[i]), ordered = /\d/.test(mark), all = element(ordered ? 'ol' : 'ul', undefined, parent);
  if (ordered) all.start = parseInt(mark, 10);
  while (i < lines.length) {
    const m = starts[3].exec(lines[i]);
    if (!m || m[1].length > indent.length + 1 || m[1].length < indent.length || /\d/.test(m[2]) !== ordered) break;
    const inner = [m[3]], deep = indent.length + 2;
    for (i++; i < lines.length && (lines[i].trim() === '' ? /^\s{2}/.test(lines[i + 1] ?? '') : lines[i].search(/\S/) >= deep); i++) inner.push(lines[i].slice(Math.min(deep, lines[i].length)));
    const li = element('li', undefined, all);
    if (inner.length === 1) inline(inner[0], li); else blocks(inner, li, depth + 1);
    while (i < lines.length && !lines[i].trim() && starts[3].test(lines[i + 1] ?? '')) i++;
  }
  return i;
}

function grid(lines, i, parent) {
  const t = element('table', undefined, parent), width = cells(lines[i]).length;
  const row = (line, kind) => { const tr = element('tr', undefined, t); for (const c of cells(line).slice(0, width)) inline(c, element(kind, undefined, tr)); };
  row(lines[i], 'th');
  for (i += 2; i < lines.length && lines[i].includes('|') && lines[i].trim(); i++) row(lines[i], 'td');
  return i;
}
