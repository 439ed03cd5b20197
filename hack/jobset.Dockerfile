# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# The image of JobSet's manager for clusters of kind. The context has the binary of make controlplane.
FROM scratch
COPY jobset-manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
