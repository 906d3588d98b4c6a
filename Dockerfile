# The program in an image that serves. `./run package docker` builds it with buildah; with Docker: docker build -t qwen-image .
# Tried with buildah: the second stage, on a package that was made outside. The first stage, which compiles for minutes, and
# Docker itself were not.
#
#   docker run --rm -e QWEN_IMAGE_API_KEY=secret -p 127.0.0.1:8080:8080 -v qwen-image:/data qwen-image
#   docker run --rm -v "$PWD:/out" --user "$(id -u)" qwen-image generate "a red circle" -o /out/circle.png
ARG BASE=debian:12

FROM ${BASE} AS build
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends git ca-certificates
COPY . /source
RUN /source/run package deb

FROM ${BASE}
COPY --from=build /source/build/package/*.deb /tmp/
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends ca-certificates /tmp/*.deb \
  && rm -rf /tmp/*.deb /var/lib/apt/lists/* \
  && useradd --system --uid 990 --home-dir /data --no-create-home qwen-image \
  && install -d -o qwen-image -m 777 /data
# Models that were pulled, jobs and their pictures, prompt embeddings. Other models can be mounted at /models.
ENV HF_HOME=/data/huggingface XDG_DATA_HOME=/data XDG_CACHE_HOME=/data/cache
VOLUME ["/data", "/models"]
USER 990
WORKDIR /data
EXPOSE 8080
ENTRYPOINT ["qwen-image"]
# An address that others reach asks for a key: without QWEN_IMAGE_API_KEY it says so and ends.
CMD ["serve", "--host", "0.0.0.0"]
