// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/trainyard/trainyard/cmd/internal/webhookserver"
	"github.com/trainyard/trainyard/gateway"
	"github.com/trainyard/trainyard/test/check"
)

// TestDefaultWorkerTimeout: the default of the flag is what docs/gateway.md says.
func TestDefaultWorkerTimeout(t *testing.T) {
	check.Equal(t, gateway.DefaultAnswerTimeout, defaultOptions().gateway.timeout, "default of --gateway-worker-timeout")
}

// serveAsGateway serves a handler as the manager serves the gateway, and returns the address.
func serveAsGateway(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	dir := t.TempDir()
	mount(t, dir, newAuthority(t).secret(t, time.Now().Add(time.Hour)))
	address, ended := make(chan string, 1), make(chan error, 1)
	log := funcr.NewJSON(func(line string) {
		said := struct{ Msg, Address string }{}
		if json.Unmarshal([]byte(line), &said) == nil && said.Address != "" {
			address <- said.Address
		}
	}, funcr.Options{})
	r := &gatewayRunner{options: &gatewayOptions{address: "127.0.0.1:0"}, handler: handler, log: log}
	watcher, err := certwatcher.New(filepath.Join(dir, webhookserver.CertFile), filepath.Join(dir, webhookserver.KeyFile))
	check.Must(t, err)
	go func() { ended <- r.serve(t.Context(), watcher) }()
	select {
	case at := <-address:
		return at
	case err := <-ended:
		t.Fatalf("the gateway is not served: %v", err)
	}
	return ""
}

// dialed connects to an address. asked says whether the server has asked for a client's certificate.
func dialed(t *testing.T, address, protocol string) (connection *tls.Conn, asked bool) {
	t.Helper()
	dialer := &tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{protocol},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			return &tls.Certificate{}, nil
		},
	}}
	plain, err := dialer.DialContext(t.Context(), "tcp", address)
	check.Must(t, err)
	t.Cleanup(func() { _ = plain.Close() })
	check.Must(t, plain.SetDeadline(time.Now().Add(time.Minute)))
	connection = plain.(*tls.Conn)
	check.Equal(t, protocol, connection.ConnectionState().NegotiatedProtocol, "protocol")
	return connection, asked
}

// TestGatewayBoundsHeaders: a header that is larger than any client's is refused before a handler sees it. By HTTP/1.1 the
// answer is 431. By HTTP/2, Go's server takes a field that is too long for a fault of the connection, and ends it with
// COMPRESSION_ERROR, which is 9.
func TestGatewayBoundsHeaders(t *testing.T) {
	var handled atomic.Int32
	address := serveAsGateway(t, func(http.ResponseWriter, *http.Request) { handled.Add(1) })
	for name, tc := range map[string]struct {
		size       int
		code, byH2 string
	}{"Usual": {16 << 10, "200", "200"}, "Oversized": {maxGatewayHeader + 8<<10, "431", "GOAWAY 9"}, "Huge": {1 << 20, "431", "GOAWAY 9"}} {
		value := strings.Repeat("x", tc.size)
		t.Run(name+"/HTTP1", func(t *testing.T) {
			before := handled.Load()
			connection, asked := dialed(t, address, "http/1.1")
			check.Equal(t, false, asked, "the gateway asks for certificates")
			go func() {
				_, _ = fmt.Fprintf(connection, "GET /api HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\n\r\n", value)
			}()
			line := make([]byte, len("HTTP/1.1 431"))
			_, err := io.ReadFull(connection, line)
			check.Must(t, err)
			check.Equal(t, "HTTP/1.1 "+tc.code, string(line), "first line")
			check.Equal(t, tc.code == "200", handled.Load() > before, "the request was handled")
		})
		t.Run(name+"/HTTP2", func(t *testing.T) {
			before := handled.Load()
			connection, _ := dialed(t, address, "h2")
			go func() { _, _ = connection.Write(http2Request(value)) }()
			check.Equal(t, tc.byH2, http2Answer(connection), "answer")
			check.Equal(t, tc.code == "200", handled.Load() > before, "the request was handled")
		})
		t.Run(name+"/Client", func(t *testing.T) {
			before := handled.Load()
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
			t.Cleanup(transport.CloseIdleConnections)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/api", nil)
			check.Must(t, err)
			r.Header.Set("Authorization", "Bearer "+value)
			res, err := (&http.Client{Transport: transport}).Do(r)
			if tc.code == "200" {
				check.Must(t, err)
				_ = res.Body.Close()
				check.Equal(t, 2, res.ProtoMajor, "version of HTTP")
			} else if err == nil || !strings.Contains(err.Error(), "COMPRESSION_ERROR") {
				t.Errorf("the error is %v", err)
			}
			check.Equal(t, tc.code == "200", handled.Load() > before, "the request was handled")
		})
	}
}

// The types and flags of frames of HTTP/2, and the size that a frame may have.
const (
	frameHeaders, frameSettings, frameGoAway, frameReset, frameContinuation = 1, 4, 7, 3, 9
	flagEndStream, flagEndHeaders                                           = 1, 4
	maxFrame                                                                = 16 << 10
)

// http2Request returns the bytes of a request that does not heed the server's limit.
func http2Request(token string) []byte {
	text := func(value string) []byte { // A string of HPACK: its length with a prefix of seven bits, and its bytes.
		if len(value) < 127 {
			return append([]byte{byte(len(value))}, value...)
		}
		size := []byte{127}
		left := len(value) - 127
		for ; left >= 128; left /= 128 {
			size = append(size, byte(left%128+128))
		}
		return append(append(size, byte(left)), value...)
	}
	block := append([]byte{0x82, 0x84, 0x87, 0x01}, text("gateway")...) // GET, /, https and the authority.
	block = append(append(append(block, 0), text("authorization")...), text("Bearer "+token)...)
	frame := func(kind, flags byte, stream uint32, payload []byte) []byte {
		head := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))[1:]
		return append(binary.BigEndian.AppendUint32(append(head, kind, flags), stream), payload...)
	}
	all := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(frameSettings, 0, 0, nil)...)
	kind, flags := byte(frameHeaders), byte(flagEndStream)
	for len(block) > 0 {
		part := block[:min(len(block), maxFrame)]
		if block = block[len(part):]; len(block) == 0 {
			flags |= flagEndHeaders
		}
		all = append(all, frame(kind, flags, 1, part)...)
		kind, flags = frameContinuation, 0
	}
	return all
}

// http2Answer returns the code of the answer, or how the server ends the stream or the connection.
func http2Answer(from io.Reader) string {
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(from, head); err != nil {
			return "connection: " + err.Error()
		}
		payload := make([]byte, binary.BigEndian.Uint32(append([]byte{0}, head[:3]...)))
		if _, err := io.ReadFull(from, payload); err != nil {
			return "connection: " + err.Error()
		}
		switch head[3] {
		case frameGoAway:
			return fmt.Sprintf("GOAWAY %d", binary.BigEndian.Uint32(payload[4:8]))
		case frameReset:
			return fmt.Sprintf("RST_STREAM %d", binary.BigEndian.Uint32(payload))
		case frameHeaders:
			if payload[0] == 0x88 { // :status 200 in the table of HPACK.
				return "200"
			}
			return fmt.Sprintf("%x", payload[:min(len(payload), 8)])
		}
	}
}
