// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"encoding/base64"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/test/ports"
)

// WebhookServer says where a webhook server beside a cluster must listen, and how the API server reaches it.
type WebhookServer struct {
	// Host and Port are the address to listen on. The port is reserved while the cluster runs.
	Host string
	Port int
	// CertDir holds tls.crt and tls.key.
	CertDir string
	// CABundle is the PEM of the authority that issued them.
	CABundle []byte
}

// NewWebhookServer reserves a port and issues a certificate for a webhook server. Each server of a cluster has its own
// name.
func (c *Cluster) NewWebhookServer(name string) (*WebhookServer, error) {
	host, err := c.backend.hostAddress()
	if err != nil {
		return nil, err
	}
	ca, err := newAuthority(name)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority of webhook server %q: %w", name, err)
	}
	pair, err := ca.serving(host)
	if err != nil {
		return nil, fmt.Errorf("issue certificate of webhook server %q: %w", name, err)
	}
	w := &WebhookServer{Host: host, CertDir: filepath.Join(c.Dir, "webhooks", name), CABundle: ca.pem}
	if err := pair.write(w.CertDir, "tls"); err != nil {
		return nil, err
	}
	p, err := ports.Reserve(host)
	if err != nil {
		return nil, err
	}
	w.Port = p.Port
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports = append(c.ports, p)
	return w, nil
}

// WebhookURLs replaces the references to a Service in Mutating- and ValidatingWebhookConfigurations by the server's URL
// with the same path. It does not change objects of other kinds.
func WebhookURLs(server *WebhookServer, objects ...*unstructured.Unstructured) error {
	for _, object := range objects {
		err := eachWebhook(object, func(webhook map[string]any) error {
			path, found, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
			if err != nil || !found {
				return err
			}
			webhook["clientConfig"] = map[string]any{
				"url":      fmt.Sprintf("https://%s:%d%s", server.Host, server.Port, path),
				"caBundle": base64.StdEncoding.EncodeToString(server.CABundle),
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// WebhookServices makes each Service an alias of the server's host, and each Mutating- and
// ValidatingWebhookConfiguration refer to the server's port. The API server is not in a cluster network, so it can
// follow only an alias. Unlike with WebhookURLs, the certificate is for the Service.
func WebhookServices(server *WebhookServer, objects ...*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GetKind() == "Service" {
			object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": server.Host}
			continue
		}
		err := eachWebhook(object, func(webhook map[string]any) error {
			return unstructured.SetNestedField(webhook, int64(server.Port), "clientConfig", "service", "port")
		})
		if err != nil {
			return fmt.Errorf("%s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// eachWebhook calls change with each webhook of a webhook configuration, and
// not at all for other kinds.
func eachWebhook(object *unstructured.Unstructured, change func(map[string]any) error) error {
	switch object.GetKind() {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
	default:
		return nil
	}
	webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, w := range webhooks {
		webhook, ok := w.(map[string]any)
		if !ok {
			return fmt.Errorf("webhook is a %T", w)
		}
		if err := change(webhook); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(object.Object, webhooks, "webhooks")
}
