"""public.py BINARY FOLDER CONVERSATIONS.json: every template of FOLDER (*.jinja) over many conversations, rendered by jinja2
and by our interpreter. A text that differs, or a template or render that ours alone refuses, ends the proof with 1.
"""
import collections
import glob
import json
import os
import sys
import tempfile

import peer

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": {"type": "object", "properties": {
    "city": {"type": "string", "description": "Its name"}, "days": {"type": "integer", "minimum": 1, "default": 3}, "units": {"type": "string", "enum": ["C", "F"]},
    "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}}}, "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["city"]},
    "return": {"type": "string"}}}, {"type": "function", "function": {"name": "noop", "description": "Does <nothing> & \"more\"", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "x": 1e-7, "deep": {"a": [1, None, True]}}}}]}
ANSWER = {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"temperature\": 21.5}"}
U = lambda c: {"role": "user", "content": c}
A = lambda c, **k: dict({"role": "assistant", "content": c}, **k)
S = lambda c: {"role": "system", "content": c}
PARTS = [{"type": "text", "text": "What is "}, {"type": "text", "text": "this?"}]
CONVERSATIONS = [
    [U("Hi")], [S("Be brief."), U("Hi")], [U("Hi"), A("Hello!")], [U("Hi"), A("Hello!"), U("  padded \n")], [S(""), U(""), A("")], [S("äöü 日本 😀"), U("line\nline"), A("<think>\nhm\n</think>\n\n42"), U("why?")],
    [U("a"), U("b")], [A("first"), U("b")], [U("Weather?"), CALL, ANSWER], [S("s"), U("Weather?"), CALL, ANSWER, A("21.5 degrees."), U("And tomorrow?")], [U("Weather?"), dict(CALL, content="Let me see."), ANSWER, ANSWER, A("ok")],
    [U(PARTS)], [S([{"type": "text", "text": "sys"}]), U(PARTS), A([{"type": "text", "text": "A cat."}])], [U([{"type": "image"}, {"type": "text", "text": "What?"}]), A("A cat.")], [U([{"type": "image_url", "image_url": {"url": "x"}}, {"type": "video"}, {"type": "text", "text": "q"}])],
    [U("Why?"), A("Because.", reasoning_content="step 1\nstep 2", thinking="step 1\nstep 2"), U("And?"), A("So.", reasoning_content="more", thinking="more")],
    [{"role": "developer", "content": "dev"}, U("x")], [U("x"), {"role": "ipython", "content": "out"}], [U("Weather?"), A("t", reasoning_content="r", thinking="r", tool_calls=CALL["tool_calls"]), ANSWER],
    [U("Weather?"), {"role": "assistant", "tool_calls": CALL["tool_calls"]}, {"role": "tool", "content": [{"type": "text", "text": "21"}]}], [U("x"), A("</think>a</think>b"), U("<think>c")], [S("s"), S("t"), U("u")], [U("x"), {"role": "odd", "content": "y"}],
    [U("Weather?"), {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "noop", "arguments": "{\"a\": 1}"}}]}, ANSWER], [U("x"), A("y"), U("z"), A("w"), U("v"), A("u")],
]
SETTINGS = [{}, {"add_generation_prompt": True}, {"add_generation_prompt": True, "enable_thinking": False}, {"add_generation_prompt": True, "enable_thinking": True, "reasoning_effort": "high", "preserve_thinking": True},
            {"tools": TOOLS}, {"tools": TOOLS, "add_generation_prompt": True}, {"documents": [{"title": "One", "text": "text"}], "add_generation_prompt": True}, {"tools": [], "keep_past_thinking": True}]


def cases(text, extra):
    for messages in CONVERSATIONS + extra:
        for s in SETTINGS:
            v = {"bos_token": "<s>", "eos_token": "</s>", "messages": messages, "tools": None, "documents": None, "add_generation_prompt": False}
            v.update(s)
            yield {"template": text, "vars": v}


def main():
    binary, folder, stored = sys.argv[1:4]
    extra = []
    if os.path.exists(stored):
        for c in json.load(open(stored, encoding="utf-8")).values():
            extra.append([{k: v for k, v in m.items() if v is not None} for m in c["messages"]])
    env, total, files, bad = peer.environment(), collections.Counter(), sorted(glob.glob(folder + "/*.jinja")), 0
    for path in files:
        text = open(path, encoding="utf-8").read()
        every = list(cases(text, extra))
        with tempfile.TemporaryDirectory() as work:
            answers = peer.ours(binary, every, work)
        count = collections.Counter()
        template = env.from_string(text)
        for c, a in zip(every, answers):
            try:
                want, error = template.render(**c["vars"]), None
            except Exception as e:
                want, error = None, "%s: %s" % (type(e).__name__, e)
            if error is None and a.get("text") == want:
                count["equal"] += 1
            elif error is not None and "error" in a:
                count["refused by both"] += 1
                if error.startswith("TemplateError: ") and a["error"] != error[len("TemplateError: "):]:
                    count["OTHER WORDS"] += 1
            else:
                count["DIFFERENT"] += 1
            if count["DIFFERENT"] + count["OTHER WORDS"] == 1:
                print("%s: jinja2 %r %s\n  ours %r\n  messages %r" % (path, want, error, a, c["vars"]["messages"]))
        total += count
        bad += count["DIFFERENT"] + count["OTHER WORDS"]
        if not count["equal"]:
            print("%s: nothing rendered: %s" % (path, answers[0]))
            bad += 1
    print("public templates: %d files, %s" % (len(files), ", ".join("%s %d" % x for x in sorted(total.items()))))
    if bad or len(files) < 61:
        sys.exit("FAILED: public templates")


if __name__ == "__main__":
    main()
