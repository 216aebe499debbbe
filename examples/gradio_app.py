"""Caption photographs on a page of Gradio, with the things that are seen: python examples/gradio_app.py [MODEL].

It needs `pip install gradio`.
"""

import sys

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
    import gradio

    model = legenda.open(sys.argv[1] if len(sys.argv) > 1 else "photo")
    outputs = [gradio.Textbox(label="caption"), gradio.AnnotatedImage(label="things")]
    page = gradio.Interface(
        lambda image: annotate(model, image), gradio.Image(type="pil"), outputs, title="Legenda", flagging_mode="never"
    )
    page.launch()
