"""The weights of Qwen-Image-2.1, in a folder of their own."""

from tools.peers.models import Models, write_model, write_once


class Models21(Models):
    family = write_model.model_21
    short_text_layers = 3  # the vision tower adds to as many
    narrow_vae = {"base_dim": 8, "decoder_base_dim": 8}
    # The template puts 17 tokens before the prompt's 18, of which 14 are dropped after the text encoder, and 5 after.
    text_tokens = 26
    unread = ("model.visual.",)

    @property
    def tokenizer(self):
        """Of the published size: the text encoder knows control tokens by the numbers that they have there."""
        return self.full() / "processor"

    def full(self):
        """Turbo: 7 billion parameters, its text encoder and its VAE."""

        def write(folder):
            self.write_components(folder)
            write_model.write_tokenizer(folder, "2.1", turbo=True)

        return write_once(self.root / "full_q4", "writing Qwen-Image-2.1-Turbo in 4 bits (10 GB)", write)

    def vae(self):
        return self.full() / "vae"
