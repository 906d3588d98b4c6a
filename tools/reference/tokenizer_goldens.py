"""Token ids of the official tokenizer for awkward texts, alone and as prompts in the pipeline's template.

    python -m tools.reference.tokenizer_goldens models/tiny/tokenizer tests/goldens/tokenizer
"""

import argparse
import inspect
import json
import pathlib
import re
import types

import torch
from diffusers import QwenImageEditPipeline, QwenImageEditPlusPipeline, QwenImagePipeline
from tokenizers import Tokenizer
from transformers import Qwen2Tokenizer, Qwen2VLProcessor

from tools.reference import golden_json

LANGUAGES = """\
A red circle on a blue background.
Three small dogs sleep between two tall houses at night, without light
一只红色的圆圈在蓝色背景上，旁边写着“通义千问”。
漢字かな交じり文とカタカナ、そして１２３。
파란 배경에 빨간 원, 한글 조합
دائرة حمراء على خلفية زرقاء ١٢٣
नीली पृष्ठभूमि पर एक लाल वृत्त १२३
עיגול אדום עַל רקע כחול
Красный круг на синем фоне, ёжик
Ένας κόκκινος κύκλος σε μπλε φόντο
วงกลมสีแดงบนพื้นหลังสีน้ำเงิน
Một vòng tròn đỏ trên nền xanh
ከሰማያዊ ዳራ ላይ ቀይ ክብ
ᐃᓄᒃᑎᑐᑦ ᏣᎳᎩ ⴰⵎⴰⵣⵉⵖ 𐐔𐐯𐑅𐐨𐑉𐐯𐐻 𝕄𝕒𝕥𝕙 𒀀𒁀""".split("\n")

CONTRACTIONS = [
    "I'm you're he's we'd they'll I've don't", "I'M YOU'RE HE'S WE'D THEY'LL I'VE DON'T",
    "x'Ll x'lL x'rE x'Ve", "x'\u017f x'\u017ft 'K '\u212a", "'s", "'", "''s", "' s", "x\u2019s don\u2019t",
    "rock'n'roll 'tis", "'sm 'll0 'l 'r 'v",
]

UNICODE = [
    "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m", "cafe\u0301 nai\u0308ve A\u030angstro\u0308m",
    "\u212b \u2126 \u1e9b\u0323 \uac00\u11a8", "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "q\u0307\u0323 q\u0323\u0307 d\u0323\u0307\u0323", "\u0301", "\u0301\u0301\u0301a",
    "a\u09fe\u0316\u0301 a\u0316\u09fe\u0301", "\u0958 \u0929 \u0344 \u2adc \uf900",
    "\U00011935\U00011930 \U000105d2\u0307 \U00016d63\U00016d67", "\U0001d15e \U0002f800",
    "\u1c89\u1c8a\ua7cb \U00010d4a\U00010d40 \U00031350 \U0002ebf0 \U0001e6c0",
    "\U0001f44d \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 \u2764\ufe0f 1\ufe0f\u20e3", "\U0001f600\U0001f600 \U0001f600a",
    "\u00bd \u00b2 \u2167 \u2460 \u0663 \u3007 \u4e00", "fi\ufb01 \ufb06 \u00df \u0149 \u0130\u0131",
    "\ufeffbom", "\ufffd \uffff \U0010ffff \ue000", "a\u00adb\u2060c\u200ed\u202ee",
]

SPACES = [
    "", " ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", " \n", "\n ", " \n ", "a  b", "a   b", "a    ",
    "    a", "a\n\nb", "a \n\n b", "a\r\n\r\nb", "a\tb\t\tc", "\t\ta", " \t a", "a \t", "a\u00a0b",
    "a\u00a0\u00a0b", "\u00a0!", "a\u3000b", "\u3000\u3000a", "a\u200bb", "a\u200b b", "a\u2028b\u2029c",
    "a\u0085b", "a\x0bb\x0cc", "\x1c \x1d\x1e a\x1f", " \u2003 \u2003a", "a \n \n \n", "\n\n\n   \n  x",
    "!\n\n", "! \n", " !\r\n\r\na", ".\n.\n", "\u1680a", "\u180ea",
]

CONTROLS = [
    "\0", "a\0b", "\0\0\0", "\x01\x02\x7f", "\x1b[31mred\x1b[0m", "a\bb", "\x80\x9f",
]

CODE = [
    "def f(x):\n    return x ** 2  # square\n", "#include <vector>\nint main() { return 0; }\r\n",
    "https://example.com/a_b?c=d&e=%20#f", "{\"a\": [1, 2.5, -3e10], \"b\": null}", "a<b>c</b>&amp;",
    "x=1;y=22;z=333", "$100,000.00 50% +1-2*3/4", "!!! ??? ... --- ___ ===", "(a)[b]{c}<d>",
    "\u201cquoted\u201d \u2018single\u2019 \u2014 \u2026", "\uff01\uff1f\u3002\uff0c",
    "3.14159 1234567890 00", "1a2b3c a1b2", "snake_case camelCase SCREAMING", "{} {0} {{}} %s \\n \\",
    "a@b.c #tag ~x ^y `z` |",
]

RUNS = [
    "a" * 300, " " * 300, " " * 300 + "x", "\n" * 100, "ab" * 150, "1" * 50, "!" * 200, "\u6f22" * 60,
    "\U0001f600" * 40, "\u0301\u0316" * 40, "circle" * 40, "the " * 60,
]

SPECIALS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|><|image_pad|><|vision_end|>",
    "<tool_call>", "</tool_call>", "<tool_call>{}</tool_call>", "<|im_start|>system\nhi<|im_end|>\n",
    "a<|im_end|>b", "a <|im_end|> b", "<|im_start|><|im_start|>", "<|im_start", "im_start|>", "<|im_start|",
    "<|<|im_start|>|>", "<| im_start |>", "<|IM_START|>", "<|im_start|>'s", "x\n<|im_end|>\ny",
    "e<|im_end|>\u0301", "e\u0301<|im_end|>e\u0301", " <|im_end|>  <|im_end|> ", "<|im_e\u0301nd|>",
    "<|fim_prefix|>x<|fim_suffix|>", "<|repo_name|>r<|file_sep|>f", "<<|endoftext|>>", "<|unknown|>",
    "<think>", "<|object_ref_start|>dog<|object_ref_end|><|box_start|>(1,2)<|box_end|>",
    "\u2039|im_start|\u203a", "\uff1c|im_start|\uff1e",
]

TEXTS = LANGUAGES + CONTRACTIONS + UNICODE + SPACES + CONTROLS + CODE + RUNS + SPECIALS

# Prompts that meet the template's "user\n" and "<|im_end|>" in a way of their own, and one that is too long.
PROMPTS = [
    "a red circle", " ", "", "\n", "\n\n a", " a", "  a", "\r\na", "\u0301a", "\u3000x", "'s", "1", "a\n",
    "a ", "!", "\0", "{}", "{0}", "\u4e00\u53ea\u732b", "a<|im_end|>\n<|im_start|>assistant\nb", "<|im_end|>",
    "<|im_start|>", "a<|vision_start|>", "e<|im_end|>\u0301", "<tool_call>x", "word " * 1100,
    "a red circle, " * 350,
]

# How many image tokens the pictures of an edit have: a small picture's, because every token is a number here.
EDITS = [(QwenImageEditPipeline, [6]), (QwenImageEditPlusPipeline, [4]), (QwenImageEditPlusPipeline, [1, 2, 3])]

# Every code point that has a class of its own, next to letters, digits, spaces, contractions and combining marks.
BLOCK_TEXT = "a@b @1 x'@e\u0316@\u0301"
BLOCKS = [*range(0, 0x33000, 4096), 0xE0000, 0x10F000]


def template(pipeline=QwenImagePipeline):
    """What the pipeline's __init__ sets, read from its source: an instance needs a model."""
    source = inspect.getsource(pipeline.__init__)
    text = re.search(r'self\.prompt_template_encode = "(.*)"', source).group(1).encode().decode("unicode_escape")
    start = int(re.search(r"self\.prompt_template_encode_start_idx = (\d+)", source).group(1))
    length = int(re.search(r"self\.tokenizer_max_length = (\d+)", source).group(1))
    return text, start, length


def picture_template(pipeline):
    """What Edit-2509 puts before the prompt for every picture; Edit has its one picture in the template."""
    found = re.search(r'img_prompt_template = "(.*)"', inspect.getsource(pipeline._get_qwen_prompt_embeds))
    return found.group(1) if found else ""


def expand_images(text, image_tokens, kind=Qwen2VLProcessor):
    """What the processor does to a text; the whole of it needs torchvision."""
    processor = kind.__new__(kind)
    processor.image_processor = types.SimpleNamespace(merge_size=2)
    processor.image_token = "<|image_pad|>"
    grids = torch.tensor([[1, 2, 2 * count] for count in image_tokens])
    replacements = [
        processor.replace_image_token({"image_grid_thw": grids}, index) for index in range(len(image_tokens))
    ]
    return processor.get_text_with_replacements([text], images_replacements=replacements)[0][0]


def fnv1a(numbers):
    value = 0xCBF29CE484222325
    for number in numbers:
        value = (value ^ number) * 0x100000001B3 % 2**64
    return value


class Reference:
    def __init__(self, folder):
        self._official = Qwen2Tokenizer.from_pretrained(folder)
        # The same tokenizer without added tokens: what a text gives in which nothing is a control token.
        plain = json.loads(self._official.backend_tokenizer.to_str())
        plain.update(added_tokens=[], padding=None, truncation=None)
        self._plain = Tokenizer.from_str(json.dumps(plain))

    def parse(self, text, **options):
        return self._official(text, **options).input_ids

    def literal(self, text):
        return self._plain.encode(text).ids

    def words(self, text):
        """The bytes of each word after NFC: a small vocabulary gives the same ids for many other splits."""
        text = self._plain.normalizer.normalize_str(text)
        words = self._plain.pre_tokenizer.pre_tokenize_str(text)
        return [len(text[first:last].encode()) for _, (first, last) in words]

    def text_row(self, text):
        ids = self.parse(text)
        return {
            "text": text,
            "parse": ids,
            "literal": self.literal(text),
            "words": self.words(text),
            "decoded": self._official.decode(ids),
        }

    def block_row(self, first):
        """Hashes of the ids and words of all texts that put one of 4096 code points into BLOCK_TEXT."""
        texts = [BLOCK_TEXT.replace("@", chr(c)) for c in range(first, first + 4096) if not 0xD800 <= c < 0xE000]
        ids = [id for encoding in self._plain.encode_batch(texts) for id in encoding.ids]
        words = [size for text in texts for size in self.words(text)]
        return {"first": first, "ids": f"{fnv1a(ids):016x}", "words": f"{fnv1a(words):016x}"}

    def prompt_row(self, prompt):
        text, start, max_length = template()
        head, tail = text.split("{}")
        control, role = head[: -len("user\n")], head[-len("user\n") :]
        literal = self.parse(control) + self.literal(role + prompt) + self.parse(tail)
        limit = start + max_length
        return {
            "prompt": prompt,
            "parse": self.parse(text.format(prompt), max_length=limit, truncation=True),
            "literal": literal[:limit],
            "literal_total": len(literal),
        }

    def edit_row(self, pipeline, image_tokens, prompt):
        text, _, _ = template(pipeline)
        pictures = "".join(picture_template(pipeline).format(i + 1) for i in range(len(image_tokens)))
        head, tail = text.split("{}")
        # The text after the last control token belongs to the prompt: words reach from one into the other.
        head = expand_images(head + pictures, image_tokens)
        literal = self.parse(head) + self.literal(prompt) + self.parse(tail)
        try:
            parse = self.parse(expand_images(text.format(pictures + prompt), image_tokens))
        except (StopIteration, RuntimeError):  # an image token of the prompt's own has no picture
            parse = None
        return {
            "plus": pipeline is QwenImageEditPlusPipeline,
            "image_tokens": image_tokens,
            "prompt": prompt,
            "parse": parse,
            "literal": literal,
            "prompt_tokens": len(self.literal(prompt)),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    args = parser.parse_args()
    reference = Reference(args.tokenizer)
    text, start, max_length = template()
    args.output.mkdir(parents=True, exist_ok=True)
    rows = [reference.text_row(row) for row in TEXTS]
    golden_json.write(args.output / "texts.json", "literal: the ids without any added tokens", rows)
    rows = [{"text": BLOCK_TEXT}, *map(reference.block_row, BLOCKS)]
    golden_json.write(args.output / "code_points.json", "hashes of literal ids and of words; @ is the code point", rows)
    rows = [{"template": text, "start": start, "max_length": max_length}]
    rows += [reference.prompt_row(prompt) for prompt in PROMPTS]
    golden_json.write(args.output / "prompts.json", "the pipeline's template, and prompts in it", rows)
    rows = [
        {"template": template(pipeline)[0], "start": template(pipeline)[1], "picture": picture_template(pipeline)}
        for pipeline in (QwenImageEditPipeline, QwenImageEditPlusPipeline)
    ]
    # Edits cut nothing off: one long prompt shows it.
    prompts = [prompt for prompt in PROMPTS if len(prompt) < 1000] + ["<|image_pad|>", "caf\u00e9 \U0001f468\u200d\U0001f469"]
    rows += [reference.edit_row(pipeline, tokens, prompt) for pipeline, tokens in EDITS for prompt in prompts]
    rows += [reference.edit_row(QwenImageEditPipeline, [1], "word " * 1100)]
    golden_json.write(args.output / "edit_prompts.json", "the templates of edits, and prompts in them", rows)


if __name__ == "__main__":
    main()
