# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# The image of one program of cmd/:
#
#   docker build -t trainyard/manager:latest .
#   docker build -t trainyard/worker-agent:latest --build-arg PROGRAM=worker-agent .

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG PROGRAM=manager
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags='-s -w' -o /program ./cmd/$PROGRAM

# The program is static: beside it there are only the public certificate authorities.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /program /program
USER 65532:65532
ENTRYPOINT ["/program"]
