// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"time"
)

// decode64 decodes a base64 field. If the field is not base64, it reports that and returns nil.
func (p *parser) decode64(path, text string) []byte {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		p.invalid(path, "is not base64", "give base64 of PEM")
		return nil
	}
	return data
}

// certificates parses a PEM bundle. It reports a bundle without certificates, and a bundle with a broken certificate.
// decode64 has already reported a bundle that is nil.
func (p *parser) certificates(path string, data []byte) []*x509.Certificate {
	if data == nil {
		return nil
	}
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			p.invalid(path, "has a certificate that cannot be parsed", "give base64 of certificates in PEM form")
			return nil
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		p.invalid(path, "has no certificate in PEM form", "give base64 of certificates in PEM form")
	}
	return certs
}

// authority checks certificate-authority-data.
func (p *parser) authority(path, text string) []byte {
	data := p.decode64(path, text)
	certs := p.certificates(path, data)
	last := time.Time{}
	for _, cert := range certs {
		if cert.NotAfter.After(last) {
			last = cert.NotAfter
		}
	}
	if len(certs) > 0 && p.now.After(last) {
		p.invalid(path, "has expired on "+last.UTC().Format(time.DateOnly), "give the certificate authority that the worker uses now")
	}
	return data
}
