"""A real environment of atroposlib's, whose items are made here: after a letter, the model is to
say it again. Runs in an interpreter that has atroposlib; it needs no network.

    python letters_env.py serve --env.rollout_server_url URL --openai.base_url URL/v1 ...
"""

import random

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup

LETTERS = "abcd"


class LettersEnv(BaseEnv):
    name = "letters"

    @classmethod
    def config_init(cls):
        env = BaseEnvConfig(
            group_size=8,
            use_wandb=False,
            wandb_name="letters",
            max_token_length=32,
            steps_per_eval=0,
            total_steps=100_000,
            ensure_scores_are_not_same=True,
            include_messages=False,
        )
        servers = [
            APIServerConfig(model_name="policy", base_url="", api_key="none", server_type="vllm")
        ]
        return env, servers

    async def setup(self):
        self.number = 0

    async def evaluate(self, *args, **kwargs):
        pass

    async def get_next_item(self):
        self.number += 1
        return random.Random(self.number).choice(LETTERS)

    async def collect_trajectories(self, item):
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            await managed.completion(prompt=item, n=self.config.group_size, max_tokens=4)
            nodes = managed.get_state()["nodes"]
        group = ScoredDataGroup(tokens=[], masks=[], scores=[], inference_logprobs=[])
        for node in nodes:
            said = self.tokenizer.decode(node.tokens[1:], skip_special_tokens=True)
            group["tokens"].append(node.tokens)
            group["masks"].append(node.masked_tokens)
            group["inference_logprobs"].append(node.logprobs)
            group["scores"].append(said.count(item) / 4)
        if len(set(group["scores"])) == 1:
            return None, []
        return group, []


if __name__ == "__main__":
    LettersEnv.cli()
