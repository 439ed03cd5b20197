// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/remote/bounded"
)

// answer is how a worker answers a probe.
type answer int

const (
	// none: the worker does not answer, or answers with another error.
	none answer = iota
	// answered: the worker answers with a cluster ID, right or wrong.
	answered
	// unauthorized: the worker answers 401.
	unauthorized
	// forbidden: the worker answers 403.
	forbidden
)

// maxUID is how many characters the ID of a cluster may have. Kubernetes makes IDs of 36 characters.
const maxUID = 128

// prober asks a worker for its cluster ID and its APIs.
type prober struct {
	metadata metadata.Interface
	rest     rest.Interface
	// Only the loop uses the following. trainer is what the last document said, compared with what the hub knew then.
	document *document
	trainer  Trainer
	hub      *HubAPI
	hubKnew  *schemas
	// attempts counts the failed attempts to get the document.
	attempts int
	// settling is how often the document has to be read again, because it may be about to change.
	settling int
}

func newProber(config *rest.Config, client *http.Client, hub *HubAPI) (*prober, error) {
	meta, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), client)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return &prober{metadata: meta, rest: disco.RESTClient(), document: newDocument(config.Host, client), hub: hub}, nil
}

// identity is the probe: liveness and cluster ID in one request. Its error says why the answer is not answered.
func (p *prober) identity(ctx context.Context) (types.UID, answer, error) {
	namespace, err := p.metadata.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case err == nil && namespace.UID != "" && len(namespace.UID) <= maxUID:
		return namespace.UID, answered, nil
	case err == nil && namespace.UID != "":
		return "", none, fmt.Errorf("the UID of its kube-system namespace has %d characters, and may have %d",
			len(namespace.UID), maxUID)
	case err == nil:
		return "", none, errors.New("its kube-system namespace has no UID: check that the address is that of a Kubernetes " +
			"API server")
	case apierrors.IsUnauthorized(err):
		return "", unauthorized, errors.New(messageUnauthorized)
	case apierrors.IsForbidden(err):
		return "", forbidden, errors.New("the worker forbids \"get namespaces\" for kube-system: grant it to the hub's user")
	}
	if text, ok := refusedHandshake(err); ok {
		return "", unauthorized, errors.New(text)
	}
	return "", none, errors.New(explain(err))
}

// refusedHandshake recognises servers that check client certificates in the TLS handshake. crypto/tls exports no alert.
func refusedHandshake(err error) (text string, ok bool) {
	operation := (*net.OpError)(nil)
	if !errors.As(err, &operation) || operation.Op != "remote error" {
		return "", false
	}
	for _, alert := range []string{"certificate", "access denied"} {
		if strings.Contains(operation.Error(), alert) {
			return "the worker refuses the client certificate: give new credentials", true
		}
	}
	return "", false
}

// explain says in an admin's words why there was no answer, without what changes each time: local ports and addresses.
func explain(err error) string {
	unknown := x509.UnknownAuthorityError{}
	wrongHost := x509.HostnameError{}
	expired := x509.CertificateInvalidError{}
	record := tls.RecordHeaderError{}
	dns := (*net.DNSError)(nil)
	operation := (*net.OpError)(nil)
	status := (*apierrors.StatusError)(nil)
	excess := (*bounded.TooLargeError)(nil)
	switch {
	case errors.As(err, &excess):
		return excess.Error()
	case errors.As(err, &unknown):
		return "the server's certificate is not signed by the kubeconfig's certificate authority: the authority has " +
			"changed, or the address leads to another server"
	case errors.As(err, &wrongHost):
		return "the server's certificate is not valid for the host in the kubeconfig: use one of its names, or set " +
			"tls-server-name"
	case errors.As(err, &expired):
		return "the server's certificate is not valid: " + expired.Error()
	case errors.As(err, &record) || errors.Is(err, http.ErrSchemeMismatch):
		return "the server does not speak TLS"
	case errors.As(err, &dns):
		return fmt.Sprintf("the host %q is not found by DNS", dns.Name)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || isTimeout(err):
		return "the server does not answer in time"
	case errors.As(err, &operation):
		return fmt.Sprintf("%s: %v", operation.Op, operation.Err)
	case errors.As(err, &status):
		return fmt.Sprintf("the server answers %d %s", status.ErrStatus.Code, http.StatusText(int(status.ErrStatus.Code)))
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "the server closes the connection"
	}
	return "the request has failed: " + strings.ToValidUTF8(err.Error(), "")
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// apis is what a worker serves.
type apis struct {
	kubernetes string
	trainJob   bool
	jobSet     bool
	// devices says whether Dynamic Resource Allocation is served.
	devices bool
	// taintRules is the version of DeviceTaintRules that is served. Empty: none.
	taintRules string
	trainer    Trainer
	// unsure is true when the fields are not known yet but may be known later.
	unsure bool
}

// apis asks what the worker serves. Every authenticated user may ask that.
func (p *prober) apis(ctx context.Context) (apis, error) {
	found := apis{}
	raw, err := p.rest.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return found, fmt.Errorf("ask for its version: %s", explain(err))
	}
	info := version.Info{}
	if err := json.Unmarshal(raw, &info); err != nil {
		return found, errors.New("ask for its version: the answer is not that of a Kubernetes API server")
	}
	found.kubernetes = info.GitVersion
	if found.trainJob, err = p.serves(ctx, trainjobs.GroupVersionKind.GroupVersion().String(), "trainjobs"); err != nil {
		return found, err
	}
	if found.jobSet, err = p.serves(ctx, jobSetGVK.GroupVersion().String(), resourceJobSets); err != nil {
		return found, err
	}
	if found.devices, found.taintRules, err = p.servesDevices(ctx, found.kubernetes); err != nil {
		return found, err
	}
	if found.trainJob {
		found.trainer, found.unsure, err = p.schema(ctx)
	}
	return found, err
}

// servesDevices asks which versions of Dynamic Resource Allocation the worker serves. Where none of them may have
// DeviceTaintRules, that is the only request.
func (p *prober) servesDevices(ctx context.Context, kubernetes string) (devices bool, taintRules string, err error) {
	group := &metav1.APIGroup{}
	err = p.rest.Get().AbsPath("/apis/" + capacity.DeviceVersion.Group).Do(ctx).Into(group)
	if apierrors.IsNotFound(err) {
		return false, "", nil
	} else if err != nil {
		return false, "", fmt.Errorf("ask for %s: %s", capacity.DeviceVersion.Group, explain(err))
	}
	served := func(version string) bool {
		return slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == version })
	}
	if !served(capacity.DeviceVersion.Version) {
		return false, "", nil
	}
	for _, version := range capacity.TaintRuleVersions {
		if !served(version) || !capacity.MayServeTaintRules(kubernetes, version) {
			continue
		}
		has, err := p.serves(ctx, capacity.DeviceVersion.Group+"/"+version, capacity.TaintRules)
		if err != nil {
			return false, "", err
		}
		if has {
			return true, version, nil
		}
	}
	return true, "", nil
}

func (p *prober) serves(ctx context.Context, groupVersion, resource string) (bool, error) {
	list := &metav1.APIResourceList{}
	err := p.rest.Get().AbsPath("/apis/" + groupVersion).Do(ctx).Into(list)
	if apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("ask for %s: %s", groupVersion, explain(err))
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }), nil
}
