// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Options of a fleet.
type Options struct {
	// Workers is how many there are.
	Workers int
	// Nodes of each worker, and GPUs of each node.
	Nodes int
	GPUs  int64
	// RunFor is how long TrainJobs take on these workers. 0: nothing runs there, and an object that is deleted in the
	// foreground stays for ever.
	RunFor time.Duration
}

// Fleet is a number of workers.
type Fleet struct {
	Workers []*Worker
}

// Worker is one fake worker.
type Worker struct {
	// Name is worker-0 and so on.
	Name string
	// ID is the UID of the namespace kube-system.
	ID types.UID
	// Config is for a client that may do everything.
	Config *rest.Config

	store   *store
	gate    *gate
	server  *http.Server
	trainer *trainJobController
	serving sync.WaitGroup
}

// Start starts a fleet.
func Start(options Options) (*Fleet, error) {
	certificate, ca, err := newCertificate()
	if err != nil {
		return nil, err
	}
	fleet := &Fleet{}
	for i := range options.Workers {
		worker, err := newWorker(fmt.Sprintf("worker-%d", i), options, certificate, ca)
		if err != nil {
			return nil, errors.Join(err, fleet.Close())
		}
		fleet.Workers = append(fleet.Workers, worker)
	}
	return fleet, nil
}

// Close stops all workers.
func (f *Fleet) Close() error {
	var errs []error
	for _, worker := range f.Workers {
		errs = append(errs, worker.close())
	}
	return errors.Join(errs...)
}

func newWorker(name string, options Options, certificate tls.Certificate, ca []byte) (*Worker, error) {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for worker %q: %w", name, err)
	}
	w := &Worker{
		Name: name, store: newStore(), gate: newGate(),
		Config: &rest.Config{
			Host: "https://" + listener.Addr().String(), BearerToken: rand.Text(), TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1,
		},
	}
	w.ID = populate(w.store, options)
	if options.RunFor > 0 {
		w.trainer = newTrainJobController(w.store, options.RunFor)
		w.store.observe(w.trainer.see)
	}
	w.server = &http.Server{
		Handler: &handler{store: w.store, token: w.Config.BearerToken}, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0), // A client that goes away is no news.
	}
	w.serving.Go(func() {
		_ = w.server.ServeTLS(gatedListener{Listener: listener, gate: w.gate}, "", "") // It ends with close.
	})
	return w, nil
}

// Hang makes the worker accept connections and answer nothing, until Resume.
func (w *Worker) Hang() { w.gate.set(false) }

// Resume ends Hang. What was asked meanwhile is answered now.
func (w *Worker) Resume() { w.gate.set(true) }

func (w *Worker) close() error {
	if w.trainer != nil {
		w.trainer.stop()
	}
	err := w.server.Close()
	w.gate.set(true)
	w.serving.Wait()
	return err
}

// Kubeconfig returns a kubeconfig with which the manager accepts the worker.
func (w *Worker) Kubeconfig() ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[w.Name] = &clientcmdapi.Cluster{Server: w.Config.Host, CertificateAuthorityData: w.Config.CAData}
	config.AuthInfos[w.Name] = &clientcmdapi.AuthInfo{Token: w.Config.BearerToken}
	config.Contexts[w.Name] = &clientcmdapi.Context{Cluster: w.Name, AuthInfo: w.Name}
	config.CurrentContext = w.Name
	return clientcmd.Write(*config)
}

// populate creates what a cluster has at the beginning: namespaces and nodes. It returns the cluster's ID.
func populate(s *store, options Options) types.UID {
	for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		s.mustCreate(namespaces, newNamespace(name))
	}
	for i := range options.Nodes {
		amounts := map[string]any{"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": fmt.Sprint(options.GPUs)}
		name := fmt.Sprintf("node-%d", i)
		s.mustCreate(nodes, map[string]any{
			"metadata": map[string]any{"name": name, "labels": map[string]any{"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "FAKE"}},
			"spec":     map[string]any{},
			"status": map[string]any{
				"capacity": amounts, "allocatable": amounts,
				"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady"}},
			},
		})
	}
	system, err := s.get(namespaces, types.NamespacedName{Name: metav1.NamespaceSystem})
	if err != nil {
		panic(err) // It was created above.
	}
	return system.meta.GetUID()
}

// newNamespace is what an API server makes of a namespace.
func newNamespace(name string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": name, "labels": map[string]any{"kubernetes.io/metadata.name": name}},
		"spec":     map[string]any{"finalizers": []any{"kubernetes"}}, "status": map[string]any{"phase": "Active"},
	}
}

// newCertificate returns a certificate for 127.0.0.1 that is its own authority, and the authority as PEM.
func newCertificate() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("make key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fake servers"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("make certificate: %w", err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca, nil
}
