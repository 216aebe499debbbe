# A server of captions on CPUs, without PyTorch: the packaged photograph model at port 8000, or a mounted folder of
# legenda export; runs themselves take an image with PyTorch:
#     docker build -t legenda .
#     docker run -p 8000:8000 legenda
#     docker run -p 8000:8000 -v "$PWD/runs:/runs:ro" legenda legenda serve /runs/mine/onnx --host 0.0.0.0
#     docker build -t legenda-torch --build-arg EXTRAS=serve,torch .
FROM python:3.12-slim

WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY src src
ARG EXTRAS=serve
# the index has builds of PyTorch without CUDA, which pip prefers to those of equal version with it
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu --constraint constraints.txt ".[$EXTRAS]" \
    && useradd --uid 1000 --create-home legenda

USER 1000
WORKDIR /home/legenda
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=3)"]
CMD ["legenda", "serve", "photo", "--host", "0.0.0.0", "--port", "8000"]
