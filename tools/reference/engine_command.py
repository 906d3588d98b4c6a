"""The engine's command for each of the official pipelines."""

from tools.reference.official_pipelines import KINDS


def words(pipeline, folder, inputs):
    """The command and the options that a manifest does not supply. INPUTS are the manifest's, in FOLDER."""
    edits = KINDS[pipeline].sees and "images" in inputs
    option = "--input-image" if edits else "--init-image"
    command = ["edit" if edits else "generate"]
    command += [f"{option}={folder / name}" for name in inputs.get("images", [])]
    if "sigmas" in inputs:
        command.append("--sigmas=" + ",".join(str(sigma) for sigma in inputs["sigmas"]))
    if "mask" in inputs:
        # The official pipelines do not lay the untouched pixels over the result.
        command += [f"--mask={folder / inputs['mask']}", "--no-blend"]
    return command + ([f"--strength={inputs['strength']}"] if "strength" in inputs else [])
