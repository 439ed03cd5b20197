// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"encoding/json"
	"errors"

	"sigs.k8s.io/yaml"
)

// document is the part of a kubeconfig that this package reads. Certificates stay base64 text here, so that a fault in
// one of them names its field and hides no other fault. Fields that are always refused are not decoded.
type document struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	CurrentContext string         `json:"current-context"`
	Clusters       []namedCluster `json:"clusters"`
	Users          []namedUser    `json:"users"`
	Contexts       []namedContext `json:"contexts"`
}

type namedCluster struct {
	Name    string  `json:"name"`
	Cluster cluster `json:"cluster"`
}

type cluster struct {
	Server                   string `json:"server"`
	TLSServerName            string `json:"tls-server-name"`
	InsecureSkipTLSVerify    bool   `json:"insecure-skip-tls-verify"`
	CertificateAuthority     string `json:"certificate-authority"`
	CertificateAuthorityData string `json:"certificate-authority-data"`
	ProxyURL                 string `json:"proxy-url"`
	DisableCompression       bool   `json:"disable-compression"`
}

type namedUser struct {
	Name string `json:"name"`
	User user   `json:"user"`
}

type user struct {
	ClientCertificate     string          `json:"client-certificate"`
	ClientCertificateData string          `json:"client-certificate-data"`
	ClientKey             string          `json:"client-key"`
	ClientKeyData         string          `json:"client-key-data"`
	Token                 string          `json:"token"`
	TokenFile             string          `json:"tokenFile"`
	Impersonate           string          `json:"as"`
	ImpersonateUID        string          `json:"as-uid"`
	ImpersonateGroups     []string        `json:"as-groups"`
	ImpersonateUserExtra  json.RawMessage `json:"as-user-extra"`
	Username              string          `json:"username"`
	Password              string          `json:"password"`
	AuthProvider          json.RawMessage `json:"auth-provider"`
	Exec                  json.RawMessage `json:"exec"`
}

type namedContext struct {
	Name    string         `json:"name"`
	Context contextOfUsers `json:"context"`
}

type contextOfUsers struct {
	Cluster string `json:"cluster"`
	User    string `json:"user"`
}

// set says whether a field that is always refused is present.
func set(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null"
}

// decode reads YAML or JSON. It does not return the decoder's own errors, because they can quote the input.
func decode(data []byte) (*document, *Fault) {
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, &Fault{
			Path: "kubeconfig", Problem: "is neither YAML nor JSON",
			Remedy: "give the output of \"kubectl config view --raw --minify --flatten\"",
		}
	}
	doc := &document{}
	if err := json.Unmarshal(asJSON, doc); err != nil {
		path := "kubeconfig"
		if typeError := (*json.UnmarshalTypeError)(nil); errors.As(err, &typeError) && typeError.Field != "" {
			path = typeError.Field
		}
		return nil, &Fault{Path: path, Problem: "has the wrong type", Remedy: "give what \"kubectl config view --raw\" prints there"}
	}
	return doc, nil
}
