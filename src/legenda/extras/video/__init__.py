"""Captioned videos: the embedded moving scenes, and the recipes of VATEX and MSVD."""

from importlib.resources import files

PARTS = {
    "data set": {"moving_scenes": "legenda.extras.video.data:MovingScenesData"},
    "file of recipes": {"video": files(__name__) / "recipes.toml"},
}
