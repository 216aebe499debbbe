# A server of captions, for each of the two installations. Without PyTorch, about 0.36 GB: the packaged model of
# photographs at port 8000, or a mounted folder of legenda export:
#     docker build -t legenda .
#     docker run -p 8000:8000 legenda
#     docker run -p 8000:8000 -v "$PWD/runs:/runs:ro" legenda legenda serve /runs/mine/onnx --host 0.0.0.0
# With PyTorch for CPUs, about 1.7 GB: mounted runs too, and every other command:
#     docker build -t legenda-torch --build-arg EXTRAS=serve,torch .
#     docker run -p 8000:8000 -v "$PWD/runs:/runs:ro" legenda-torch legenda serve /runs/mine --host 0.0.0.0
FROM python:3.12-slim AS wheel

WORKDIR /build
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:3.12-slim
ARG EXTRAS=serve
# the index has builds of PyTorch without CUDA, which pip prefers to those of equal version with it
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --no-compile --extra-index-url https://download.pytorch.org/whl/cpu \
    --constraint /constraints.txt "legenda[$EXTRAS] @ $(find /wheel -name '*.whl' -printf 'file://%p')" \
    && useradd --uid 1000 --create-home legenda

USER 1000
WORKDIR /home/legenda
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=3)"]
CMD ["legenda", "serve", "photo", "--host", "0.0.0.0", "--port", "8000"]
