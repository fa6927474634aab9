# Images of Stria: `docker build --target cpu|cuda|cpu-dev .` One image holds all three services; the manifests say which one runs.
# The steps are those of `./stria`. Every image runs as user 10001 and needs nowhere to write but the controller's --state.

FROM debian:12-slim AS build
WORKDIR /src
# Packages first: they change less often than the sources.
COPY stria ./
COPY third_party/packages.txt third_party/
RUN ./stria packages third_party/packages.txt
COPY . .
RUN ./stria install /opt/stria

FROM debian:12-slim AS cpu
COPY --from=build /src/stria /src/third_party/runtime_packages.txt /tmp/install/
RUN /tmp/install/stria packages /tmp/install/runtime_packages.txt && rm -r /tmp/install /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin stria \
    && install -d -o 10001 -g 10001 /var/lib/stria
COPY --from=build /opt/stria /opt/stria
ENV PATH=/opt/stria/bin:$PATH
USER 10001:10001
EXPOSE 8000 8001 8002 5555 5556 5557

# The model inside, for clusters that are thrown away.
FROM build AS model
RUN ./stria fetch /models/model.gguf

FROM cpu AS cpu-dev
COPY --from=model /models /models

# The driver's libraries come from NVIDIA's container toolkit, which these two variables address. The CUDA runtime is linked statically.
FROM build AS build-cuda
ARG CUDA=13-0
ADD https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb /tmp/
RUN dpkg -i /tmp/cuda-keyring_1.1-1_all.deb && apt-get update -q \
    && apt-get install -y -q --no-install-recommends cuda-nvcc-$CUDA cuda-cudart-dev-$CUDA libcublas-dev-$CUDA libnccl-dev
RUN ./stria install /opt/stria

FROM cpu AS cuda
USER 0
ARG CUDA=13-0
COPY --from=build-cuda /tmp/cuda-keyring_1.1-1_all.deb /tmp/
RUN dpkg -i /tmp/cuda-keyring_1.1-1_all.deb && apt-get update -q \
    && apt-get install -y -q --no-install-recommends libcublas-$CUDA libnccl2 && rm -rf /var/lib/apt/lists/* /tmp/*.deb
COPY --from=build-cuda /opt/stria /opt/stria
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
