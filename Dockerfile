# The program in an image of its own: docker build -t monotron . && docker run monotron doctor
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY . .
RUN make build gloo

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends libdnnl2 libgloo0 openssh-client && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/bin/ /usr/local/bin/
ENTRYPOINT ["monotron"]
