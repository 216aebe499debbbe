"""Caption photographs on a page of Gradio, with the things that are seen. It needs `pip install gradio`.

python examples/gradio_app.py
"""

import argparse

import legenda


def annotate(pipeline, image):
    """Return the caption of a PIL image, and the image with the boxes of its things in pixels."""
    caption = pipeline.caption(image)
    size = (image.width, image.height) * 2
    things = [
        (tuple(round(x * side) for x, side in zip(thing.box, size, strict=True)), f"{thing.label} {thing.score:.2f}")
        for thing in caption.things or ()
    ]
    return caption.text, (image, things)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="photo", help="a run, or photo, the packaged model")
    options = parser.parse_args()
    import gradio

    model = legenda.open(options.model)
    outputs = [gradio.Textbox(label="caption"), gradio.AnnotatedImage(label="things")]
    page = gradio.Interface(
        lambda image: annotate(model, image), gradio.Image(type="pil"), outputs, title="Legenda", flagging_mode="never"
    )
    page.launch()
