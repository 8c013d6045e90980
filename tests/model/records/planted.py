"""Planted: lines that programs print, each with a secret of another kind, made by a seed."""

from __future__ import annotations

import base64
import random
import string

_ALL = string.ascii_letters + string.digits


class _Made:
    """Random texts of an alphabet."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def any(self, count: int, alphabet: str = _ALL) -> str:
        return "".join(self._random.choices(alphabet, k=count))

    def hex(self, count: int) -> str:
        return self.any(count, "0123456789abcdef")

    def upper(self, count: int) -> str:
        return self.any(count, string.ascii_uppercase + "234567")

    def digits(self, count: int) -> str:
        return self.any(count, "123456789")


def planted(seed: int) -> dict[str, tuple[str, str]]:
    """A line of a log and the secret in it, by its kind."""
    made = _Made(seed)
    basic = base64.b64encode(f"ada:{made.any(9)}".encode()).decode()
    word = made.any(6, string.ascii_lowercase) + made.digits(2)
    uuid = f"{made.hex(8)}-{made.hex(4)}-{made.hex(4)}-{made.hex(4)}-{made.hex(12)}"
    rsa, ssh = "MIIEpAIBAAKCAQEA" + made.any(48), "b3BlbnNzaC1rZXktdjE" + made.any(50)
    # In two parts: scanners of code hosts take a whole one for real.
    begin, end = "-----BEGIN {}PRIVATE " + "KEY-----", "-----END {}PRIVATE " + "KEY-----"
    by_form = {
        "Hugging Face": "hf_" + made.any(34),
        "OpenAI": "sk-proj-" + made.any(48),
        "Anthropic": "sk-ant-api03-" + made.any(62),
        "GitHub": "ghp_" + made.any(36),
        "GitHub, by OAuth": "gho_" + made.any(36),
        "GitHub, fine-grained": f"github_pat_{made.any(22)}_{made.any(59)}",
        "GitLab": "glpat-" + made.any(20),
        "AWS key id": "AKIA" + made.upper(16),
        "Google": "AIza" + made.any(35),
        "Google, by OAuth": "ya29." + made.any(60),
        "Slack bot": f"xoxb-{made.digits(12)}-{made.any(24)}",
        "Telegram": f"{made.digits(10)}:AA{made.any(33)}",
        "Twilio": "SK" + made.hex(32),
        "SendGrid": f"SG.{made.any(22)}.{made.any(43)}",
        "Stripe": "sk_" + "live_" + made.any(24),
        "npm": "npm_" + made.any(36),
        "PyPI": "pypi-AgEIcHlwaS5vcmc" + made.any(60),
        "NVIDIA": "nvapi-" + made.any(60),
        "Replicate": "r8_" + made.any(37),
        "web token": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{made.any(30)}.{made.any(43)}",
        "age": "AGE-SECRET-KEY-1" + made.upper(58),
        "Databricks": "dapi" + made.hex(32),
        "Vault": "hvs." + made.any(24),
    }
    by_place = {
        "AWS secret key": ("aws_secret_access_key = {}", made.any(40)),
        "AWS session": ("AWS_SESSION_TOKEN={}", "IQoJ" + made.any(200)),
        "service account": (
            '{{"private_key": "' + begin.format("") + r"\n{}\n" + end.format("") + r'\n"}}',
            made.any(60),
        ),
        "Azure account": (
            "DefaultEndpointsProtocol=https;AccountName=lab;AccountKey={};EndpointSuffix=core",
            made.any(86) + "==",
        ),
        "Azure signature": (
            "https://lab.blob.core.windows.net/runs?sv=2022-11-02&sig={}",
            made.any(43) + "%3D",
        ),
        "Slack webhook": (
            "POST https://hooks.slack.com/services/{}",
            f"T{made.upper(8)}/B{made.upper(8)}/{made.any(24)}",
        ),
        "Discord webhook": (
            "https://discord.com/api/webhooks/{}",
            f"{made.digits(18)}/{made.any(68)}",
        ),
        "Teams webhook": (
            "https://lab.webhook.office.com/{}",
            f"webhookb2/{uuid}/IncomingWebhook/{made.hex(32)}",
        ),
        "W&B variable": ("WANDB_API_KEY={}", made.hex(40)),
        "W&B login": ("$ wandb login {}", made.hex(40)),
        "netrc": ("machine api.wandb.ai login user password {}", made.hex(40)),
        "bearer": ("headers={{'Authorization': 'Bearer {}'}}", made.any(32)),
        "basic": ("> Authorization: Basic {}", basic),
        "proxy": ("Proxy-Authorization: Basic {}", basic),
        "URL": ("cloning https://ada:{}@git.lab/x.git", word),
        "Redis URL": ("redis://:{}@cache.lab:6379/0", word),
        "DSN": ("host=db.lab user=ada password={} dbname=runs", word),
        "YAML": ("  password: {}", "correcthorse"),
        "JSON": ('{{"user": "ada", "password": "{}"}}', "correct horse battery"),
        "repr": ("Namespace(api_key='{}', lr=0.1)", "qwertyuiop"),
        "export": ("+ export DB_PASSWORD={}", word),
        "env": ("MYSQL_PWD={}", "mice-and-men"),
        "option": ("$ python train.py --password {} --lr 3e-4", word),
        "option of a key": ("running: train.py --api-key {} --steps 10", "qwertyuiop"),
        "curl": ("+ curl -u {} https://lab/", f"ada:{word}"),
        "cookie": ("Cookie: session={}", made.any(30)),
        "new cookie": ("< Set-Cookie: sid={}; HttpOnly", made.any(24)),
        "header of a key": ("X-API-Key: {}", made.any(24)),
        "PEM": (f"{begin}\n{{}}\n{end}".replace("{}PRIVATE", "RSA PRIVATE"), rsa),
        "OpenSSH": (f"{begin}\n{{}}\n{end}".replace("{}PRIVATE", "OPENSSH PRIVATE"), ssh),
        "Docker": ('{{"auths": {{"nvcr.io": {{"auth": "{}"}}}}}}', basic),
        "pgpass": ("db.lab:5432:runs:ada:{}", word),
        "Datadog": ("DD_API_KEY={}", made.hex(32)),
        "Kaggle": ('{{"username":"ada","key":"{}"}}', made.hex(32)),
        "Jupyter": ("http://127.0.0.1:8888/lab?token={}", made.hex(48)),
        "S3 address": (
            "https://b.s3.amazonaws.com/x?X-Amz-Date=1&X-Amz-Signature={}",
            made.hex(64),
        ),
        "sshpass": ("+ sshpass -p {} ssh node1", word),
    }
    found = {kind: (f"using {secret} now", secret) for kind, secret in by_form.items()}
    return found | {
        kind: (line.format(secret), secret) for kind, (line, secret) in by_place.items()
    }


ORDINARY = """
{'loss': 2.3412, 'grad_norm': 1.2345, 'learning_rate': 4.9e-05, 'epoch': 0.12, 'num_tokens': 81920}
Some weights of LlamaForSequenceClassification were not initialized: ['score.weight']
Setting `pad_token_id` to `eos_token_id`:128001 for open-end generation.
Special tokens have been added in the vocabulary, make sure their embeddings are trained.
bos_token=<|begin_of_text|> eos_token='<|end_of_text|>' pad_token: <pad> unk_token=[UNK]
AddedToken("<|im_end|>", rstrip=False, lstrip=False, single_word=False, normalized=False)
tokenizer.eos_token = "</s>"; tokenizer.pad_token = tokenizer.eos_token
model_max_length=4096, num_key_value_heads=8, key_size: 128, use_cache=False
Missing key(s) in state_dict: "lm_head.weight". Unexpected key(s): "attn.masked_bias"
size mismatch for key=model.layers.0.self_attn.k_proj.weight: torch.Size([1024, 4096])
KeyError: 'token_type_ids'
KeyError: "password"
ValueError: HF_TOKEN: set it, or run hf auth login
huggingface_hub.errors.GatedRepoError: 401 Client Error: token is invalid.
wandb: Currently logged in as: ada (lab). Use `wandb login --relogin` to force relogin
wandb: WARNING API key must be 40 characters long, yours was 12
wandb: Run data is saved locally in /home/ada/wandb/run-20260517_123059-a1b2c3d4
node1:2211:2211 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>
node1:2211:2290 [0] NCCL INFO comm 0x5581f0 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 17000
[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, secret 0
E1120 20:42:07.282000 12802 torch/distributed/elastic/multiprocessing/api.py:1002] failed
commit 95eecdd0a1b2c3d4e5f60718293a4b5c6d7e8f90 (HEAD -> main)
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08: Pull complete
loading configuration file /root/.cache/huggingface/hub/models--gpt2/snapshots/607a30d783dfa663caf
forward pass: 0.51 s, backward pass: 1.02 s, second pass=3
--token TOKEN        the token to use; default: $HF_TOKEN
--password PASSWORD  asked for if it is not given
login(token=args.token, password=os.environ["DB_PASSWORD"], api_key=get_key())
password = getpass.getpass("Password: ")
Password: incorrect for user ada
key: value, another_key: another-value, cache_key=layer_10/attention
tokens: 8192 tokens/s: 10433.2 token=the token: Hello next_token=1234 tokens=[1, 2, 3]
author: Ada Lovelace <ada@lab.org> authors=3 auth=None authentication: disabled
secretary: none  secrets=0  SECRET=  API_KEY=None  DB_PASSWORD=*** token=<redacted>
Epoch 3: 100%|##########| 391/391 [01:02<00:00,  6.25it/s, v_num=0, train_loss=0.69]
GPU 0: NVIDIA H100 (UUID: GPU-5a1b2c3d-aaaa-bbbb-cccc-0123456789ab)
00:11:22:33:44:55 brd ff:ff:ff:ff:ff:ff  inet6 fe80::1ff:fe23:4567:890a/64
2026-11-20 12:30:59,123 INFO mntrain: step 120 loss 2.31 keyboard=de monkey=banana1234
"""
"""Lines as frameworks print them, with words that secrets have for names."""
