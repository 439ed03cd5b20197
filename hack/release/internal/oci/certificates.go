// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// certificates returns the certificate authorities that Mozilla trusts, as one PEM file. It leaves out authorities
// whose certificates Mozilla trusts only if they were issued before a date: a PEM file cannot say that.
func certificates() ([]byte, error) {
	var file bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&file, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return file.Bytes(), nil
}
