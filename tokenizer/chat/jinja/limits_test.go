package jinja

import (
	"errors"
	"strings"
	"testing"
)

// hostile are templates that would take memory or time without end, each as one expression or
// loop.
var hostile = []string{
	"{{ 'a' * 10**9 }}", "{{ 10**9 * 'a' }}", "{{ [1] * 10**9 }}", "{{ (1,) * 10**10 }}", "{{ 'é' * 2**62 * 'a' }}", "{{ ('a' * 10**6) * 10**6 }}",
	"{{ {'a': [1, {'b': 2}]}|tojson(indent=10**8) }}", "{{ [[[1]]]|tojson(indent='x' * 10**8) }}", "{{ [1, 2]|slice(10**9)|list }}",
	"{{ [1]|batch(10**9, 'x')|list }}", "{{ 'a'|center(10**9) }}", "{{ 'a'.center(10**9) }}", "{{ 'a'.ljust(10**9) }}", "{{ 'a'.zfill(10**9) }}",
	"{{ 'a\tb'.expandtabs(10**9) }}", "{{ 2 ** (10**9) }}", "{{ 10 ** (10 ** 10) }}", "{{ (2 ** (10**5)) ** (10**5) }}", "{% set x = 7 ** 100000 %}{% for i in range(100000) %}{{ x * x % 3 }}{% endfor %}", "{{ range(10**9)|list }}", "{{ range(10**20) }}",
	"{{ '%1000000000d' % 1 }}", "{{ '%.1000000000f' % 1.5 }}", "{{ '%*d' % (10**9, 1) }}", "{{ '%.999999999d' % 1 }}", "{{ '{:>1000000000}'.format(1) }}", "{{ '{:.1000000000f}'.format(1.5) }}",
	"{{ '{:01000000000,}'.format(1) }}", "{{ '{:{}}'.format(1, 10**9) }}", "{{ 'a'|indent(10**9, true) }}", "{{ ('a\n' * 10**5)|indent('b' * 10**5) }}",
	"{{ ('a' * 10**6)|replace('', 'b' * 10**6) }}", "{{ ('a' * 10**6).replace('a', 'b' * 10**6) }}", "{{ ('x' * 10**5).join('y' * 10**5) }}", "{{ ('ab ' * 10**6)|wordwrap(1)|length * [1] }}",
	"{{ ('<' * 10**6)|urlize|length * 'a' * 10**9 }}", "{{ ('www.' * 10**5 ~ ' ') * 10**3 }}", "{{ ('&' * 10**6)|forceescape|forceescape|forceescape|forceescape|forceescape }}",
	"{{ range(100000)|map('list')|list }}", "{{ cycler(*range(100000)).items * 10**6 }}", "{{ dict.fromkeys('a' * 10**7) }}", "{{ lipsum(10**9) }}",
	"{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}{{ ns.a|length }}",
	"{% set ns = namespace(a=[1]) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
	"{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
	"{% set ns = namespace(a=(1,)) %}{% for i in range(99) %}{% set ns.a = (ns.a, ns.a) %}{% endfor %}{{ {ns.a: 1} }}",
	"{% set ns = namespace(a=[1]) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a|tojson }}",
	"{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a < ns.b }}",
	"{% set ns = namespace(a=[1]) %}{% for i in range(99999) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
	"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "{% set ns = namespace(a=7) %}{% for i in range(99) %}{% set ns.a = ns.a * ns.a %}{% endfor %}{{ ns.a % 10 }}",
	"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% macro f(x) %}{% if x %}{{ f(x) }}{% endif %}{% endmacro %}{{ f(1) }}", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
	"{% macro f(n) %}{{ f(n) ~ f(n) }}{% endmacro %}{{ f(1) }}", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
	"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "{% for i in range(90000) %}{{ 'a' * 1000 }}{% endfor %}",
	"{% block a %}{{ 'a' * 10**9 }}{% endblock %}", "{% set x %}{{ 'a' * 10**9 }}{% endset %}", "{% filter upper %}{% for i in range(100000) %}{{ 'a' * 9999 }}{% endfor %}{% endfilter %}",
	"{% set s = 'a' * 10**7 %}{% for i in range(100000) %}{{ s[i] }}{{ s.find('b') }}{{ s == s ~ '' }}{% endfor %}",
	"{% set s = 'ab' * 10**6 %}{% for i in range(100000) %}{{ s.count('a') }}{% endfor %}", "{% set s = range(100000)|list %}{% for i in s %}{{ i in s }}{% endfor %}",
	"{% set s = ('a ' * 10**6).split() %}{{ s|sort|unique|list|length * 'a' * 10**9 }}", "{{ (('a' * 30000 ~ '-') * 100)|wordwrap(5)|wordwrap(3)|wordwrap(2)|length * 'a' * 10**9 }}",
	"{% for a in range(99999) if false %}{% else %}{{ [a] * 10**9 }}{% endfor %}{{ 1 / 0 }}", "{{ ('%s' * 10**6) % (range(100000)|list * 10) }}",
	"{{ 'a'.format(*range(100000)) * 10**9 }}", "{{ ('{' * 999999).format() }}", "{{ ('{0}' * 10**6).format('a' * 10**4) }}", "{{ ('a,' * 10**6).split(',')|join('b' * 100) }}",
}

// Claim: whatever a template asks for, it ends with one short error, after counts that are the
// same on every machine; no clock is asked. (A tenth of the default bounds, so that the test is quick.)
func TestHostileTemplatesEnd(t *testing.T) {
	for _, text := range hostile {
		template, err := Parse(text)
		if err == nil {
			_, err = template.Render(NewDict(), Options{Limits: Limits{Steps: 1_000_000, Memory: 32 << 20, Output: 4 << 20, Depth: 180}})
		}
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: rendered", text)
		} else if len(err.Error()) > 300 {
			t.Errorf("%s: an error of %d bytes", text, len(err.Error()))
		}
	}
}

// Claim: sources that nest without end are refused while they are read.
func TestDeepSourcesAreRefused(t *testing.T) {
	for _, part := range []string{"(", "[", "{1:", "-", "not ", "a[", "f(", "a if b else ", "a|f(", "a is b("} {
		if _, err := Parse("{{ " + strings.Repeat(part, 50_000)); err == nil {
			t.Errorf("%q, 50,000 times, is a template", part)
		}
	}
	for _, part := range []string{"{% if a %}", "{% for a in b %}", "{% macro a() %}", "{% filter upper %}", "{% set x %}", "{% call a() %}", "{% with %}", "{% generation %}"} {
		if _, err := Parse(strings.Repeat(part, 20_000)); err == nil {
			t.Errorf("%q, 20,000 times, is a template", part)
		}
	}
	for _, part := range []string{"a + ", "a and ", "a|e|"} {
		if _, err := Parse("{{ " + strings.Repeat(part, 60_000) + "a }}"); err == nil {
			t.Errorf("%q, 60,000 times, is a template", part)
		}
	}
}

// Claim: a source of the largest size that is read takes no more than seconds to compile, whatever it is made of.
func TestLargeSourcesCompile(t *testing.T) {
	names := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "#", sprintf("%d", i)))
		}
		return b.String()
	}
	chain := "1" + strings.Repeat("+1", 390)
	for i := range 55 {
		chain = "(" + chain + ")" + strings.Repeat("+1", 390-i)
	}
	for _, text := range []string{
		names("{% set a# = 1 %}", 6000) + names("{% if b# %}{% endif %}", 6000), names("{% if x %}{% set a# = 1 %}{% else %}{% set b# = 2 %}{% endif %}", 3500),
		names("{% macro m#(p#, q=p#) %}{% endmacro %}", 5500), names("{% for i# in l %}{{ i# }}{% endfor %}", 6000), names("{{ a# if b# else c# }}", 8000), "{{ " + chain + " }}",
		strings.Repeat("{% for a in b %}{% if c %}", 18) + names("{{ d# }}", 20000) + strings.Repeat("{% endif %}{% endfor %}", 18), names("{% block b# scoped %}{% endblock %}", 6000),
	} {
		if _, err := Parse(text); err != nil {
			t.Errorf("%.60s...: %v", text, err)
		}
	}
}
