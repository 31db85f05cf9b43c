# The service of one fitted student:
#
#     docker build -t darkbayes .
#     docker run --rm -p 8000:8000 -v "$PWD/runs/boston-MEDV:/model:ro" darkbayes
#
# With -e DARKBAYES_TOKEN=... every request needs that token. `docker stop -t 30` lets it answer what it has begun.
# An exported file does as well: -v "$PWD/houses.onnx:/houses.onnx:ro" darkbayes /houses.onnx --host 0.0.0.0
FROM python:3.13-slim-bookworm AS build
RUN python -m venv /venv
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
# All that serving imports, and nothing of JAX, which it has no use for.
RUN /venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps . \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt \
    numpy scipy safetensors tyro rich onnxruntime pyarrow pillow fastapi uvicorn

FROM python:3.13-slim-bookworm
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1
RUN useradd --system --uid 10001 --no-create-home darkbayes
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["darkbayes", "serve"]
CMD ["/model", "--host", "0.0.0.0"]
