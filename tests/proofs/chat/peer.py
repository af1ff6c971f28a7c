"""jinja2 with the settings of transformers (utils/chat_template_utils.py of 5.x), and a pairing of its renders with ours."""
import datetime
import json
import os
import signal
import subprocess

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2024, 7, 26, 13, 4, 5)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_generation_support"), [], [], body).set_lineno(lineno)

    @jinja2.pass_eval_context
    def _generation_support(self, context, caller):
        return caller()


class TemplateDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            TemplateNamespace._check_name(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        TemplateNamespace._check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check_name(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError("underscore")


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    env.globals["dict"] = TemplateDict()
    env.globals["namespace"] = TemplateNamespace
    return env


class Slow(Exception):
    pass


def _slow(*_):
    raise Slow()


def render(env, template, variables, seconds=2):
    """(text, None) or (None, why): what jinja2 makes of a template."""
    signal.signal(signal.SIGALRM, _slow)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        text = env.from_string(template).render(**variables)
        text.encode()  # lone surrogates are no text
        return text, None
    except Slow:
        return None, "Slow"
    except RecursionError:
        return None, "RecursionError"
    except Exception as e:
        return None, "%s: %s" % (type(e).__name__, e)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def ours(binary, cases, work):
    """What our interpreter makes of cases [{template, vars}]: a list of {text} or {error}."""
    source, answers = os.path.join(work, "cases.jsonl"), os.path.join(work, "answers.jsonl")
    with open(source, "w", encoding="utf-8") as f:
        for c in cases:
            f.write(json.dumps({"template": c["template"], "vars": c["vars"]}) + "\n")
    run = subprocess.run([binary, "-test.run", "^TestAnswersPeer$"], env=dict(os.environ, MONOTRON_JINJA_CASES=source, MONOTRON_JINJA_ANSWERS=answers),
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode:
        raise SystemExit("our interpreter ended with %d:\n%s" % (run.returncode, run.stdout[-3000:]))
    with open(answers, encoding="utf-8") as f:
        return [json.loads(line) for line in f]
