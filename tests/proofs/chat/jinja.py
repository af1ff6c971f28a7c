"""jinja.py BINARY COUNT SEED..: random templates over random values, rendered by jinja2 and by our interpreter.

BINARY is the compiled test of tokenizer/chat/jinja. For each seed COUNT templates are made from a grammar that has every
construct a chat template can use. Told: how many are equal, refused by both, refused by ours alone (by reason), and
different. A difference, or a template that only ours renders, ends the proof with 1.

jinja.py --subset FILE COUNT SEED..: writes some of the cases with jinja2's answers: the Go test's data.
"""
import collections
import json
import random
import re
import sys
import tempfile
import warnings

import peer

warnings.simplefilter("ignore")

TEXTS = ["", " ", "a", "B", "hello world", "  padded \t", "x\ny", "ab-cd", "äöü ß", "日本語", "Ünï CODE", "a'b", 'q"q', "back\\slash", "1", "42", "-7", "3.5", "0x1f",
         "<b>&amp;</b>", "{x}", "%s", "tab\tin", "\u2028sep", "end\r\n", "ǅungla", "ﬁ", "😀x", "a,b,,c", "  ", "TRUE", "http://example.com/a?b=1", "user@mail.org", "\x7f\x1b", "é\u0301"]
NAMES = ["a", "b", "n", "f", "s", "t", "l", "d", "m", "u", "nested", "items", "words", "big", "flag", "nothing", "x", "messages"]
ATTRS = ["role", "content", "a", "b", "x", "items", "keys", "upper", "name", "missing", "length", "0", "tool_calls", "get", "_private", "__class__", "copy", "index", "real"]


class Maker:
    """Makes templates; depth bounds nesting."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.macros = []
        self.loops = 0
        self.spaces = []

    def pick(self, *options):
        return self.r.choice(options)

    def chance(self, p):
        return self.r.random() < p

    # Values.
    def scalar(self):
        r = self.r
        return self.pick(lambda: r.choice(TEXTS), lambda: r.choice(TEXTS), lambda: r.randint(-9, 99), lambda: r.choice([0, 1, -1, 2, 10, 255, 10**6, 2**63, -(2**70), 10**30]),
                         lambda: r.choice([0.0, -0.0, 1.0, 0.5, 2.5, -3.7, 1e-7, 1e16, 1e22, 123456789.125, 0.1, 1 / 3, 1e-5, 5e-324, 1.7e308]), lambda: True, lambda: False, lambda: None)()

    def value(self, depth=2):
        r = self.r
        if depth == 0 or self.chance(0.4):
            return self.scalar()
        if self.chance(0.5):
            kind = self.pick("mixed", "ints", "texts", "dicts")
            n = r.randint(0, 4)
            if kind == "ints":
                return [r.randint(-5, 20) for _ in range(n)]
            if kind == "texts":
                return [r.choice(TEXTS) for _ in range(n)]
            if kind == "dicts":
                return [{"a": r.randint(0, 3), "b": r.choice(TEXTS), "x": self.value(depth - 1)} for _ in range(n)]
            return [self.value(depth - 1) for _ in range(n)]
        return {r.choice(ATTRS + TEXTS): self.value(depth - 1) for _ in range(r.randint(0, 4))}

    def variables(self):
        r = self.r
        messages = [{"role": r.choice(["user", "assistant", "system", "tool"]), "content": r.choice([r.choice(TEXTS), [{"type": "text", "text": r.choice(TEXTS)}], self.scalar()])}
                    for _ in range(r.randint(0, 4))]
        v = {"a": self.value(0), "b": self.value(0), "n": r.randint(-5, 12), "f": r.choice([0.5, -2.25, 3.0, 1e20, 7.0]), "s": r.choice(TEXTS), "t": r.choice(TEXTS) + r.choice(TEXTS),
             "l": [self.value(1) for _ in range(r.randint(0, 5))], "d": {r.choice(ATTRS): self.value(1) for _ in range(r.randint(0, 4))}, "m": self.value(2),
             "nested": {"a": {"b": [1, {"x": self.scalar()}]}, "items": 3}, "items": [r.randint(0, 9) for _ in range(r.randint(0, 6))],
             "words": [r.choice(TEXTS) for _ in range(r.randint(0, 5))], "big": r.choice([2**64, 10**25, -(10**20)]), "flag": self.chance(0.5), "nothing": None, "messages": messages}
        return v

    # Literals.
    def string(self):
        if self.chance(0.15):
            return self.pick(r"'a\nb'", r'"t\tq\"x"', r"'\x41\u00e9'", r"'\\'", r"'it\'s'", r"'\101\0'", r"'\q'", r"'\U0001f600'", "'a' 'b'", "\"x\" 'y'", "'\\é'", r"'\u2028\x7f'")
        text = self.r.choice(TEXTS)
        q = self.pick("'", '"')
        return q + text.replace("\\", "\\\\").replace(q, "\\" + q).replace("\r", "\\r") + q

    def number(self):
        return str(self.pick(self.r.randint(0, 12), self.r.randint(0, 300), 0, 1, 2, "1_000", "0x1F", "0b101", "0o17", "1.5", "2.0", "1e3", "0.1", "1.5e-7", "12_3.4", "99999999999999999999", "00"))

    def literal(self):
        return self.pick(self.string, self.string, self.number, self.number, lambda: self.pick("true", "false", "none", "True", "None", "[]", "{}", "()", "''"))()

    # Expressions.
    def name(self):
        return self.r.choice(NAMES + ["undefined_name", "loop" if self.loops else "s"] + self.spaces)

    def args(self, depth, most=2):
        return ", ".join(self.expr(depth - 1) for _ in range(self.r.randint(0, most)))

    def expr(self, depth=3):
        if depth <= 0:
            return self.pick(self.name, self.literal, self.name)()
        e = lambda: self.expr(depth - 1)
        return self.pick(
            self.name, self.literal, self.name, self.literal,
            lambda: "%s %s %s" % (e(), self.pick("+", "-", "*", "/", "//", "%", "**", "~", "+", "~", "%"), e()),
            lambda: "(%s) %s (%s)" % (e(), self.pick("+", "-", "*", "/", "//", "%", "~"), e()),
            lambda: "%s %s %s" % (e(), self.pick("==", "!=", "<", "<=", ">", ">=", "in", "not in"), e()),
            lambda: "%s < %s <= %s" % (e(), e(), e()),
            lambda: "%s %s %s" % (e(), self.pick("and", "or"), e()),
            lambda: "not %s" % e(),
            lambda: "%s%s" % (self.pick("-", "+"), e()),
            lambda: "(%s if %s else %s)" % (e(), e(), e()),
            lambda: "(%s if %s)" % (e(), e()),
            lambda: "[%s]" % ", ".join(e() for _ in range(self.r.randint(0, 3))),
            lambda: "(%s,)" % e(),
            lambda: "(%s, %s)" % (e(), e()),
            lambda: "{%s}" % ", ".join("%s: %s" % (self.pick(self.string, self.number, self.string)(), e()) for _ in range(self.r.randint(0, 3))),
            lambda: "%s.%s" % (self.wrapped(depth), self.r.choice(ATTRS)),
            lambda: "%s[%s]" % (self.wrapped(depth), e()),
            lambda: "%s[%s]" % (self.wrapped(depth), self.slice()),
            lambda: "%s|%s" % (self.wrapped(depth), self.filter(depth)),
            lambda: "%s|%s" % (self.wrapped(depth), self.filter(depth)),
            lambda: "%s|%s|%s" % (self.wrapped(depth), self.filter(depth), self.filter(depth)),
            lambda: "%s|%s" % (self.wrapped(depth), self.filter(depth)),
            lambda: "%s is %s" % (self.wrapped(depth), self.test(depth)),
            lambda: "%s is not %s" % (self.wrapped(depth), self.test(depth)),
            lambda: self.method(depth), lambda: self.method(depth), lambda: self.method(depth),
            lambda: self.format(depth),
            lambda: self.call(depth),
            lambda: "loop.%s" % self.pick("index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "depth", "depth0", "cycle('a', 'b')", "changed(%s)" % self.name()) if self.loops else self.name(),
        )()

    def wrapped(self, depth):
        return self.pick(self.name, self.name, self.string, lambda: "(%s)" % self.expr(depth - 1))()

    def bound(self):
        return str(self.pick("", "", 0, 1, 2, 3, -1, -2, 5, 100, "n", "none"))

    def slice(self):
        return "%s:%s%s" % (self.bound(), self.bound(), self.pick("", "", "", ":", ":2", ":-1", ":-2", ":1"))

    def method(self, depth):
        s, n, sep = self.string, lambda: self.pick("0", "1", "2", "3", "-1", "10", "n"), lambda: self.pick("' '", "','", "'a'", "'x'", "''", "'-'", "none", "s")
        on = self.pick("s", "t", "s", self.string(), "words[0]", "a", "(s ~ t)", "messages[0].content", "('<b>'|safe)", "s|e")
        which = self.pick("upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "lstrip()", "rstrip()", "strip(%s)" % s(), "lstrip(%s)" % s(), "rstrip(%s)" % s(),
                          "split()", "split(%s)" % sep(), "split(%s, %s)" % (sep(), n()), "rsplit(%s, %s)" % (sep(), n()), "split(maxsplit=%s)" % n(), "rsplit()", "splitlines()", "splitlines(true)",
                          "partition(%s)" % sep(), "rpartition(%s)" % sep(), "startswith(%s)" % s(), "endswith(%s)" % s(), "startswith((%s, %s))" % (s(), s()), "startswith(%s, %s)" % (s(), n()),
                          "endswith(%s, %s, %s)" % (s(), n(), n()), "replace(%s, %s)" % (s(), s()), "replace(%s, %s, %s)" % (sep(), s(), n()), "find(%s)" % s(), "rfind(%s)" % s(), "index(%s)" % s(), "find(%s, %s, %s)" % (sep(), n(), n()),
                          "count(%s)" % sep(), "count(%s, %s)" % (sep(), n()), "join(words)", "join(%s)" % self.expr(depth - 1), "join(s)", "zfill(%s)" % self.pick("5", "0", "10"),
                          "center(%s)" % self.pick("7", "8", "11"), "ljust(9, '*')", "rjust(9)", "center(10, %s)" % s(), "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "istitle()",
                          "isnumeric()", "isdecimal()", "isidentifier()", "isprintable()", "isascii()", "removeprefix(%s)" % s(), "removesuffix(%s)" % s(), "expandtabs()", "expandtabs(3)", "format(1)", "encode")
        if self.chance(0.2):
            on = self.pick("d", "nested", "m", "messages[0]", "l", "items", "(1, 2, 1)", "{'a': 1, 2: 'x'}", "l[0]")
            which = self.pick("items()", "keys()", "values()", "get('a')", "get('role', 'none')", "get(%s)" % self.expr(depth - 1), "copy()", "pop('a')", "update({})", "append(1)", "index(1)", "count(1)", "items()|list", "keys()|list", "values()|list|length",
                              "setdefault('a', 1)", "index(1, 1)", "sort()", "get")
        if self.chance(0.05):
            return "%s.%s" % (self.pick("n", "f", "big", "flag"), self.pick("real", "imag", "numerator", "denominator", "bit_length()", "conjugate()", "is_integer()"))
        return "%s.%s" % (on, which)

    def format(self, depth):
        e = lambda: self.expr(depth - 2)
        if self.chance(0.5):
            spec = "%" + self.pick("", "-", "+", "0", " ", "#", "-0") + self.pick("", "", "5", "12", "*") + self.pick("", "", ".0", ".2", ".5") + self.pick("s", "d", "i", "f", "e", "g", "x", "o", "X", "r", "c", "G", "E", "%", "a", "u", "q")
            args = self.pick(e(), "(%s, %s)" % (e(), e()), "(%s,)" % e(), "n", "f", "(n, f)", "a", "s", "big")
            return "'<%s>%s' %% %s" % (spec, self.pick("", "", " %s", "%(a)s", "%%"), args)
        spec = self.pick("", "", ":", ":>8", ":<8", ":^9", ":*^9", ":08", ":+", ": ", ":,", ":_", ":d", ":x", ":#x", ":#b", ":b", ":o", ":e", ":.2f", ":.3", ":g", ":10.3f", ":,.2f", ":%", ":.1%", ":010,", ":=+8", ":s", ":.2s", ":{}", "!r", "!s", "!a:>9", ":.0f", ":G", ":X", ":012_x", ":<05")
        field = self.pick("", "", "0", "a", "b", "0[0]", "0.real", "a[x]", "a.role", "1")
        return "'<{%s%s}>%s'.format(%s)" % (field, spec, self.pick("", "{{}}", " {}", "{"), self.pick("n", "f", "s", "n, f", "s, 3", "a=n", "a=s, b=f", "l", "d, a=d", "big", "a", "none", "flag", "undefined_name", "f, 6"))

    def call(self, depth):
        e = lambda: self.expr(depth - 1)
        options = ["range(%s)" % self.pick("3", "n", "2, 6", "5, 0, -2", "0", "1, 1", "0, 9, 4"), "dict(a=%s)" % e(), "dict(d)", "dict(%s)" % e(), "namespace(v=%s).v" % e(), "joiner()()", "cycler(1, 2).next()", "strftime_now('%Y-%m-%d %H:%M %j %A %b %p')",
                   "strftime_now('%d %B %y %-d %e')", "raise_exception('no')" if self.chance(0.1) else "range(2)|list", "dict.fromkeys('ab', 1)", "undefined_name(1)", "s(1)", "lipsum" if self.chance(0.1) else "cycler('a').current", "range(9)[1:7:2]|list", "range(4)[-1]"]
        for name in self.macros:
            options += ["%s(%s)" % (name, self.args(depth)), "%s(%s)" % (name, e()), "%s(q=%s)" % (name, e()), "%s(*l)" % name, "%s(**d)" % name]
        return self.r.choice(options)

    def filter(self, depth):
        e, s, n = (lambda: self.expr(depth - 2)), self.string, lambda: self.pick("0", "1", "2", "3", "n", "10", "-1")
        return self.pick(
            "upper", "lower", "title", "capitalize", "trim", "trim(%s)" % s(), "length", "count", "first", "last", "list", "join", "join(%s)" % s(), "join(', ', attribute='a')", "join(%s)" % e(), "default(%s)" % e(),
            "default(%s, true)" % e(), "d('x')", "int", "int(5)", "int(base=16)", "int(%s)" % e(), "float", "float(1.5)", "abs", "round", "round(2)", "round(1, 'floor')", "round(0, 'ceil')", "round(-1)", "string", "string|length", "reverse", "reverse|list", "sort", "sort(reverse=true)",
            "sort(attribute='a')", "sort(case_sensitive=true)", "sort(attribute='b,a')", "unique|list", "unique(attribute='a')|list", "min", "max", "min(attribute='a')", "max(case_sensitive=true)", "sum", "sum(attribute='a')", "sum(start=%s)" % e(),
            "map('upper')|list", "map(attribute='a')|list", "map(attribute='b', default='z')|list", "map('length')|list", "map('string')|join('-')", "map(%s)|list" % s(), "map(attribute='x.a')|list", "map(attribute=0)|list", "map('default', 3)|list",
            "select|list", "select('string')|list", "select('defined')|list", "select('>', 2)|list", "select('in', %s)|list" % e(), "reject('none')|list", "reject|list", "selectattr('a')|list", "selectattr('a', '==', 1)|list", "selectattr('b', 'string')|list",
            "rejectattr('a', 'odd')|list", "selectattr('role', 'equalto', 'user')|list|length", "dictsort", "dictsort(true)", "dictsort(by='value')", "dictsort(reverse=true)", "items|list", "tojson", "tojson(indent=2)", "tojson(indent=%s)" % n(),
            "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "tojson(ensure_ascii=true)", "tojson(indent='--', separators=(',', '='))", "replace(%s, %s)" % (s(), s()), "replace(%s, %s, %s)" % (s(), s(), n()), "indent", "indent(2, true)", "indent('> ')", "indent(blank=true)",
            "truncate(5)", "truncate(6, true)", "truncate(4, false, '')", "truncate(5, leeway=0)", "truncate(7, end='…')", "wordcount", "wordwrap(5)", "wordwrap(4, false)", "wordwrap(3, true, '|')", "wordwrap(6, break_on_hyphens=false)", "center(9)", "center(%s)" % n(), "format(%s)" % e(),
            "format(a=%s)" % e(), "escape", "e", "safe", "safe|upper", "e ~ '<'", "forceescape", "striptags", "urlencode", "urlize", "urlize(8, true)", "urlize(target='_blank')", "xmlattr", "xmlattr(false)", "filesizeformat", "filesizeformat(true)", "batch(2)|list", "batch(%s, 'f')|list" % n(), "slice(2)|list",
            "slice(%s, 'f')|list" % n(), "groupby('a')", "groupby('a')|list", "groupby('b', default='q')|map(attribute='grouper')|list", "groupby('a')|map(attribute='list')|map('length')|list", "attr('a')", "attr(%s)" % s(), "pprint", "wordcount", "random" if self.chance(0.05) else "first",
            "list|length", "list|last", "list|sort|join(',')", "nofilter" if self.chance(0.2) else "list", "length > 2", "first|upper", "string|list", "tojson|length", "upper|safe")

    def test(self, depth):
        e = lambda: self.expr(depth - 2)
        return self.pick("defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "sequence", "iterable", "callable", "escaped", "odd", "even", "lower", "upper", "divisibleby 3",
                         "divisibleby(%s)" % e(), "sameas none", "sameas true", "sameas(l)", "in [1, 2, 'a']", "in(%s)" % e(), "eq 1", "equalto('a')", "ne 2", "gt 1", "lt(%s)" % e(), "ge 3", "le 2", "filter", "test", "greaterthan 0", "lessthan 5", "notest" if self.chance(0.2) else "defined", "in s", "eq(%s)" % e(), "string and flag", "none or n")

    # Statements.
    def blanks(self):
        return self.pick("", "", "", "\n", " ", "\n  ", "  \n", "\t", "\n\n", "x", "text ", " é\n", "\r\n")

    def tag(self, inner):
        return "{%%%s %s %s%%}" % (self.pick("", "", "", "-", "+"), inner, self.pick("", "", "", "-", "+"))

    def out(self, inner):
        return "{{%s %s %s}}" % (self.pick("", "", "", "-"), inner, self.pick("", "", "", "-"))

    def target(self):
        return self.pick("x", "y", "i", "a", "s", "k")

    def body(self, depth):
        return "".join(self.blanks() + self.statement(depth - 1) for _ in range(self.r.randint(1, 3))) + self.blanks()

    def statement(self, depth):
        if depth <= 0:
            return self.out(self.expr(2))
        return self.pick(self.print, self.print, self.print, self.print, self.if_tag, self.if_tag, self.for_tag, self.for_tag, self.for_tag, self.set_tag, self.set_tag, self.set_block, self.macro, self.call_block, self.filter_block,
                         self.with_tag, self.space, self.raw, self.comment, self.generation, self.unusual)(depth)

    def print(self, depth):
        return self.out(self.expr(3))

    def if_tag(self, depth):
        text = self.tag("if " + self.expr(2)) + self.body(depth)
        while self.chance(0.3):
            text += self.tag("elif " + self.expr(2)) + self.body(depth)
        if self.chance(0.5):
            text += self.tag("else") + self.body(depth)
        return text + self.tag("endif")

    def for_tag(self, depth):
        over = self.pick("l", "items", "words", "messages", "d", "range(3)", "s", self.expr(2), "[1, 2, 3]", "m", "[[1, 2], [3, 4]]", "items|map('string')", "items|select('odd')", "l if x")
        target = self.target()
        if self.chance(0.25):
            target, over = self.pick("k, v", "k, y", "(k, v)"), self.pick("d.items()", "d|dictsort", "[(1, 2), (3, 4)]", "nested|items", "d.items() if k", "l", "[[1, 2], [3]]")
        recursive = self.chance(0.12)
        self.loops += 1
        inner = self.body(depth)
        if self.chance(0.2):
            inner += self.tag("if " + self.expr(1)) + self.tag(self.pick("break", "continue")) + self.tag("endif") + self.body(depth - 1)
        if self.chance(0.3):
            inner += "{{ loop.%s }}" % self.pick("index", "last", "length", "revindex", "nextitem", "previtem", "first", "cycle(1, 2, 3)", "changed(%s)" % target.strip("()").split(",")[0])
        if recursive and self.chance(0.7):
            target, over = "x", self.pick("[1, [2, [3]], 4]", "[[[]]]", "l")
            inner += "{% if x is iterable and x is not string and x is not mapping %}({{ loop(x) }}){% endif %}{{ loop.depth }}"
        self.loops -= 1
        text = self.tag("for %s in %s%s" % (target, over, " recursive" if recursive else "")) + inner
        if self.chance(0.25):
            text += self.tag("else") + self.body(depth)
        return text + self.tag("endfor")

    def set_tag(self, depth):
        target = self.pick(self.target(), self.target(), "x, y", "(x, i)")
        if self.spaces and self.chance(0.5):
            target = self.r.choice(self.spaces)
        return self.tag("set %s = %s" % (target, self.expr(2) if "," not in target else self.pick("1, 2", "s, n", "[1, 2]", self.expr(1))))

    def set_block(self, depth):
        return self.tag("set %s%s" % (self.target(), self.pick("", "", " | upper", " | trim | length", " | replace('a', 'b')"))) + self.body(depth) + self.tag("endset") + "{{ x }}"

    def space(self, depth):
        name = "ns%d" % len(self.spaces)
        text = self.tag("set %s = namespace(%s)" % (name, self.pick("v=1", "v=s, w=[]", "v=0", "{'v': 2}", "")))
        self.spaces.append(name + ".v")
        return text

    def macro(self, depth):
        name = "m%d" % len(self.macros)
        loops, self.loops = self.loops, 0
        text = self.tag("macro %s(%s)" % (name, self.pick("", "p", "p, q=1", "p, q", "p='d', q=p", "q=n", "p, caller=none"))) + self.body(depth)
        if self.chance(0.6):
            text += self.pick("{{ p }}", "{{ q }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller }}", "{{ caller(1) }}", "{{ p }}{{ varargs|length }}{{ kwargs|dictsort }}")
        text += self.tag("endmacro")
        self.loops = loops
        self.macros.append(name)
        return text + self.out("%s(%s)" % (name, self.args(2)))

    def call_block(self, depth):
        if not self.macros:
            return self.macro(depth)
        return self.tag("call%s %s(%s)" % (self.pick("", "", "(z)", "(z=2)"), self.r.choice(self.macros), self.args(2))) + self.body(depth) + self.pick("", "{{ z }}") + self.tag("endcall")

    def filter_block(self, depth):
        return self.tag("filter " + self.pick("upper", "trim", "replace('a', s)", "indent(2)", "length", "upper|lower", "e", "wordcount|string", "title", "center(20)")) + self.body(depth) + self.tag("endfilter")

    def with_tag(self, depth):
        return self.tag("with " + self.pick("x = %s" % self.expr(2), "x = 1, y = x", "a = s, s = n", "")) + self.body(depth) + self.pick("", "{{ x }}") + self.tag("endwith")

    def raw(self, depth):
        return self.tag("raw").replace("+%}", "%}") + self.blanks() + self.pick("{{ x }}", "{% if %}", "{#", "plain", "") + self.blanks() + self.tag("endraw")

    def comment(self, depth):
        return "{#%s %s %s#}" % (self.pick("", "-", "+"), self.pick("note", "{{ x }}", "two\nlines", "%}"), self.pick("", "-", "+"))

    def generation(self, depth):
        loops, self.loops = self.loops, 0
        text = self.tag("generation") + self.body(depth) + self.tag("endgeneration")
        self.loops = loops
        return text

    def unusual(self, depth):
        return self.pick("{% include 'x' %}", "{% if false %}{% include 'x' ignore missing %}{% endif %}", "{% do x %}", "{% block q %}{{ x }}{{ s }}{% endblock %}", "{% print s, n %}", "{% set s.x = 1 %}", "{% break %}", "{% set loop = 1 %}", "{{", "{% endif %}",
                         "{% for loop in l %}{% endfor %}", "{{ x.y.z }}", "{% set none = 1 %}", "{{ s is }}", "{% for i in l %}{{ i }}{% endfor x %}", "{%- if true -%} a {%- endif -%} ", "{{ 'a' 'b' }}", "{{ [1,2,] }}", "{{ {'a':1,} }}", "{{ (1)(2) }}", "{{ -1|abs }}", "{{ 2 ** -1 }}", "{{ 7 // -2 }}{{ -7 % 3 }}{{ 7.5 // 2 }}", "{{ 2 ** 3 ** 2 }}",
                         "{{ x if }}", "{{ not x is defined }}", "{{ 1 is odd is even }}", "{% call m() %}{% endcall %}", "{{ s.upper }}", "{{ m0 }}", "{{ range }}", "{{ loop }}", "{{ namespace() }}", "{{ 'x'.__class__ }}", "{{ d.__class__ }}", "{{ (1, 2)[0:1] }}", "{{ l.append(1) }}", "{{ 1.real }}", "{{ s.0 }}", "{{ l.0 }}") if self.chance(0.6) else self.print(depth)

    def safe(self):
        """An expression that seldom fails, so that what stands around it is seen."""
        return self.pick("s", "t", "n", "f", "l|length", "s|upper", "l|tojson", "d|tojson", "x", "i", "k", "a", "words|join(',')", "n + 1", "n % 3", "s ~ n", "'lit'", "messages|length", "flag", "big", "not flag", "m is defined", "x is defined", "n > 3",
                         "loop.index" if self.loops else "items", "s|length > 2", "items|sum", "nothing", "s.strip()", "[n, s]", "d", "l[0]", "nested.a.b", "n if flag else s", "undefined_name", "s|trim|title", *self.spaces)

    def template(self):
        kind = self.r.random()
        if kind < 0.35:
            return self.out(self.expr(self.r.randint(1, 2)))
        if kind < 0.45:
            return self.blanks() + self.out(self.pick(self.method, self.format, self.call)(2)) + self.blanks()
        if kind < 0.55:
            return self.out("%s|%s" % (self.pick("s", "l", "items", "words", "d", "n", "f", "messages", "m", "t", "a", "nested", "big", self.string()), self.filter(2)))
        if kind < 0.9:
            deep, self.expr = self.expr, lambda depth=3: self.safe() if depth < 3 or not self.chance(0.1) else deep(1)
        if kind > 0.7:
            return self.scopes()
        return "".join(self.blanks() + self.statement(3) for _ in range(self.r.randint(1, 4))) + self.blanks()

    def plain_macro(self, depth):
        name = "m%d" % len(self.macros)
        loops, self.loops = self.loops, 0
        text = self.tag("macro %s(%s)" % (name, self.pick("p=1, q=2", "p=x, q=i", "x=1, q=x", "q=k, caller=none", "q=1, x=y", "y=q, q=2"))) + self.body(depth) + self.pick("{{ varargs|length }}{{ kwargs|length }}", "{{ varargs }}{{ kwargs }}{{ caller() if caller }}")
        self.loops = loops
        self.macros.append(name)
        return text + self.pick("{{ varargs }}{{ kwargs }}", "", "{{ p }}{{ varargs }}{{ kwargs }}", "{{ q }}{{ x }}{{ varargs }}{{ kwargs.a }}") + self.tag("endmacro")

    def plain_for(self, depth):
        target, over = self.pick(("x", "[1, 2]"), ("i", "items"), ("k", "'ab'"), ("y", "[x, i]"), ("x", "range(2)"), ("x, y", "[(1, 2), (3, 4)]"), ("k, v", "{'p': 1, 'q': 2}.items()"), ("i", "[]"), ("x", "[1, 2, 3] if x != %s" % self.pick("1", "2", "i", "k")),
                                 ("i", "items|select('odd')"), ("x", "[1, [2]] recursive"))
        self.loops += 1
        inner = self.body(depth)
        if self.chance(0.3):
            inner += self.tag("if " + self.pick("loop.first", "loop.last", "x == 1", "i", "y")) + self.tag(self.pick("break", "continue")) + self.tag("endif") + self.body(depth - 1)
        if "recursive" in over:
            inner += "{{ loop(x) if x is iterable and x is not string }}"
        self.loops -= 1
        orelse = self.tag("else") + self.body(depth) if self.chance(0.4) else ""
        return self.tag("for %s in %s" % (target, over)) + inner + orelse + self.tag("endfor")

    def plain_set(self, depth):
        if self.spaces and self.chance(0.4):
            return self.tag("set %s = %s" % (self.r.choice(self.spaces), self.expr(1)))
        return self.tag(self.pick("set %s = %s" % (self.target(), self.expr(1)), "set x, y = %s" % self.pick("1, 2", "y, x", "[i, k]", "'ab'")))

    def scopes(self):
        """Tags in each other that assign and show the same few names."""
        show = lambda: self.pick("", "[{{ x }}|{{ i }}|{{ k }}|{{ y }}]", "{{ x }}", "{{ y ~ i }}", "<{{ a }}>", "{{ x is defined }}{{ k is defined }}")
        inner = self.body
        self.expr = lambda depth=3: self.pick("x", "y", "i", "k", "a", "n", "s", "1", "'v'", "x ~ 1", "y ~ i", "[1, 2]", "items", "x or 'u'", "l", "x is defined", "not y", *(["loop.index", "loop.index0", "loop.last"] if self.loops else ["n"]),
                                              *[m + "()" for m in self.macros], *[m + "(x)" for m in self.macros], *[m + "(q=i)" for m in self.macros], *self.spaces)
        self.body = lambda depth: show() + inner(depth) + show()
        self.unusual, self.macro, self.for_tag, self.set_tag = self.print, self.plain_macro, self.plain_for, self.plain_set
        self.filter_block = lambda depth: self.tag("filter upper") + self.body(depth) + self.tag("endfilter")
        return "".join(show() + self.statement(4) for _ in range(self.r.randint(2, 5))) + show()


def case(seed):
    maker = Maker(seed)
    variables = maker.variables()
    return {"template": maker.template(), "vars": variables}


def why(error):
    """A reason without what is special to one template."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "_", re.sub(r"^line \d+: ", "", error))[:90]


def compare(cases, binary):
    env = peer.environment()
    count, reasons, bad = collections.Counter(), collections.Counter(), []
    with tempfile.TemporaryDirectory() as work:
        answers = peer.ours(binary, cases, work)
    for c, a in zip(cases, answers):
        text, error = peer.render(env, c["template"], c["vars"])
        c["text"], c["error"] = text, error
        if error in ("Slow", "RecursionError", "MemoryError: "):
            count["left out (jinja2 without end)"] += 1
        elif error is None and "error" not in a:
            same = text == a["text"]
            count["equal" if same else "DIFFERENT"] += 1
            if not same:
                bad.append((c, a))
        elif error is None:
            if re.search(r"0x[0-9a-f]{6,}", text) and "Unsupported" in a["error"]:
                count["refused by ours: jinja2 prints an address"] += 1
            else:
                count["refused by ours alone"] += 1
                reasons[why(a["error"])] += 1
                c["ours"] = a["error"]
        elif "error" in a:
            count["refused by both"] += 1
            if error.startswith("TemplateError: ") and a["error"] != error[len("TemplateError: "):]:
                count["of these with other words of raise_exception"] += 1
        else:
            count["RENDERED BY OURS ALONE"] += 1
            bad.append((c, a))
    return count, reasons, bad


def subset(path, n, seeds):
    """Writes n cases with jinja2's answers, each with the variables it names, for the Go test."""
    env, written = peer.environment(), 0
    with open(path, "w", encoding="utf-8") as f:
        for seed in seeds:
            for i in range(n // len(seeds) * 3):
                c = case(seed * 1_000_003 + i)
                v = {k: x for k, x in c["vars"].items() if re.search(r"\b%s\b" % k, c["template"])}
                text, error = peer.render(env, c["template"], v)
                kept = error is None and "0x" not in text or error is not None and i % 6 == 0 and error not in ("Slow", "RecursionError")
                if not kept or len(c["template"]) > 400 or written >= n:
                    continue
                answer = {"text": text} if error is None else {"error": error.split(":")[0]}
                f.write(json.dumps({"template": c["template"], "vars": v, **answer}, ensure_ascii=False) + "\n")
                written += 1
    print("%s: %d cases" % (path, written))


def main():
    if sys.argv[1] == "--subset":
        return subset(sys.argv[2], int(sys.argv[3]), [int(s) for s in sys.argv[4:]])
    binary, n, seeds = sys.argv[1], int(sys.argv[2]), [int(s) for s in sys.argv[3:]]
    total, reasons, bad = collections.Counter(), collections.Counter(), []
    for seed in seeds:
        cases = [case(seed * 1_000_003 + i) for i in range(n)]
        count, why_not, wrong = compare(cases, binary)
        total, reasons, bad = total + count, reasons + why_not, bad + wrong
        print("seed %d: %s" % (seed, ", ".join("%s %d" % x for x in sorted(count.items()))))
    print("all: %s" % ", ".join("%s %d" % x for x in sorted(total.items())))
    for reason, times in reasons.most_common(40):
        print("  refused by ours alone, %d: %s" % (times, reason))
    for c, a in bad[:25]:
        print("\n%s\n  jinja2 %r %s\n  ours   %r\n  vars %s" % (c["template"], c["text"], c["error"], a, json.dumps(c["vars"], ensure_ascii=False)[:600]))
    if bad or total["of these with other words of raise_exception"]:
        sys.exit("FAILED: %d templates differ" % len(bad))
    print("jinja: no template differs")


if __name__ == "__main__":
    main()
