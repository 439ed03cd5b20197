// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-multierror"
	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const (
	embed    = `embed the credentials, as "kubectl config view --raw --minify --flatten" does`
	useToken = "give a token of a service account, as \"kubectl trainyard join\" does"
	address  = "give https://<host>:<port>"
)

// TestParseFaults has each fault alone, and checks the whole text and the reason.
func TestParseFaults(t *testing.T) {
	expiredCert, expiredKey := newPair(t, now.Add(-time.Minute))
	cert, key := newPair(t, now.Add(time.Hour))
	_, otherKey := newPair(t, now.Add(time.Hour))
	type config = clientcmdv1.Config
	server := func(c *config) *clientcmdv1.Cluster { return &c.Clusters[0].Cluster }
	user := func(c *config) *clientcmdv1.AuthInfo { return &c.AuthInfos[0].AuthInfo }
	const insecure, invalid = v1alpha1.ReasonInsecureKubeconfig, v1alpha1.ReasonInvalidKubeconfig

	cases := map[string]struct {
		reason string
		change func(*config)
		kind   string
		want   string
	}{
		"Exec": {
			reason: "An exec plugin runs a program in the manager.",
			change: func(c *config) { user(c).Exec = &clientcmdv1.ExecConfig{Command: "aws"} },
			kind:   insecure, want: `users["hub"].user.exec: runs a program in the manager; ` + useToken,
		},
		"AuthProvider": {
			reason: "An auth provider runs a program or needs a plugin.",
			change: func(c *config) { user(c).AuthProvider = &clientcmdv1.AuthProviderConfig{Name: "gcp"} },
			kind:   insecure, want: `users["hub"].user.auth-provider: needs a plugin in the manager; ` + useToken,
		},
		"CertificateAuthorityFile": {
			reason: "A file reference reads the manager's files, although the data wins.",
			change: func(c *config) { server(c).CertificateAuthority = "/etc/passwd" },
			kind:   insecure,
			want: `clusters["worker"].cluster.certificate-authority: refers to a file; give certificate-authority-data, ` +
				`as "kubectl config view --raw --minify --flatten" does`,
		},
		"ClientCertificateFile": {
			reason: "As for the certificate authority.",
			change: func(c *config) { user(c).ClientCertificate = "/etc/passwd" },
			kind:   insecure, want: `users["hub"].user.client-certificate: refers to a file; ` + embed,
		},
		"ClientKeyFile": {
			reason: "As for the certificate authority.",
			change: func(c *config) { user(c).ClientKey = "/etc/passwd" },
			kind:   insecure, want: `users["hub"].user.client-key: refers to a file; ` + embed,
		},
		"TokenFile": {
			reason: "It would send any file of the manager to the worker.",
			change: func(c *config) { user(c).TokenFile = "/etc/passwd"; user(c).Token = "" },
			kind:   insecure, want: `users["hub"].user.tokenFile: refers to a file; give its content as token`,
		},
		"InsecureSkipTLSVerify": {
			reason: "Without verification anybody gets the token.",
			change: func(c *config) { server(c).InsecureSkipTLSVerify = true },
			kind:   insecure,
			want: `clusters["worker"].cluster.insecure-skip-tls-verify: is set, so anybody can pose as the worker; ` +
				`remove it and give certificate-authority-data`,
		},
		"PlainHTTP": {
			reason: "Without TLS anybody on the way gets the token.",
			change: func(c *config) { server(c).Server = "HTTP://worker.example.com" },
			kind:   insecure,
			want:   `clusters["worker"].cluster.server: is plain http, which shows the credentials to anybody on the way; ` + address,
		},
		"UserInURL": {
			reason: "It is basic authentication by another way.",
			change: func(c *config) { server(c).Server = "https://hub:hunter2@worker.example.com" },
			kind:   insecure, want: `clusters["worker"].cluster.server: has a user or password in it; ` + address,
		},
		"Proxy": {
			reason: "A proxy of the kubeconfig's choice sees where we go, and more if it is plain.",
			change: func(c *config) { server(c).ProxyURL = "http://proxy:3128" },
			kind:   insecure,
			want: `clusters["worker"].cluster.proxy-url: sends the worker's credentials through a proxy that the kubeconfig chooses; ` +
				`remove it; a proxy is set for the manager by HTTPS_PROXY`,
		},
		"Username": {
			reason: "Basic authentication.",
			change: func(c *config) { user(c).Username = "admin" },
			kind:   insecure, want: `users["hub"].user.username: is basic authentication; ` + useToken,
		},
		"Password": {
			reason: "Basic authentication; the password stays out of the text.",
			change: func(c *config) { user(c).Password = "hunter2" },
			kind:   insecure, want: `users["hub"].user.password: is basic authentication; ` + useToken,
		},
		"Impersonate": {
			reason: "The worker's RBAC must say what the hub may do, not the kubeconfig.",
			change: func(c *config) { user(c).Impersonate = "system:admin" },
			kind:   insecure, want: `users["hub"].user.as: impersonates somebody; ` + useToken,
		},
		"ImpersonateWithoutCredentials": {
			reason: "Impersonation does not take the place of credentials.",
			change: func(c *config) { *user(c) = clientcmdv1.AuthInfo{Impersonate: "system:admin"} },
			kind:   insecure,
			want: "users[\"hub\"].user: has no credentials; give a token, or client-certificate-data and client-key-data\n" +
				`users["hub"].user.as: impersonates somebody; ` + useToken,
		},
		"ImpersonateUID": {
			reason: "As for the user.",
			change: func(c *config) { user(c).ImpersonateUID = "1" },
			kind:   insecure, want: `users["hub"].user.as-uid: impersonates somebody; ` + useToken,
		},
		"ImpersonateGroups": {
			reason: "As for the user.",
			change: func(c *config) { user(c).ImpersonateGroups = []string{"system:masters"} },
			kind:   insecure, want: `users["hub"].user.as-groups: impersonates somebody; ` + useToken,
		},
		"ImpersonateExtra": {
			reason: "As for the user.",
			change: func(c *config) { user(c).ImpersonateUserExtra = map[string][]string{"a": {"b"}} },
			kind:   insecure, want: `users["hub"].user.as-user-extra: impersonates somebody; ` + useToken,
		},
		"SeveralContexts": {
			reason: "current-context is one command away from another cluster, whose credentials we do not want either.",
			change: func(c *config) {
				c.Contexts = append(c.Contexts, clientcmdv1.NamedContext{
					Name: "other", Context: clientcmdv1.Context{Cluster: "worker", AuthInfo: "hub"},
				})
			},
			kind: insecure,
			want: `contexts: 2 of them are usable, so it is not clear which is the worker's; ` +
				`keep only the worker's, as "kubectl config view --raw --minify --flatten" does`,
		},
		"NoServer": {
			reason: "client-go would go to localhost.",
			change: func(c *config) { server(c).Server = "" },
			kind:   invalid, want: `clusters["worker"].cluster.server: is missing; ` + address,
		},
		"ServerWithoutHost": {
			reason: "client-go reads a bare word as a host and adds http.",
			change: func(c *config) { server(c).Server = "worker.example.com" },
			kind:   invalid, want: `clusters["worker"].cluster.server: is not a URL with a host; ` + address,
		},
		"ServerUnparsable": {
			reason: "The URL parser quotes what it is given, and that can contain a password.",
			change: func(c *config) { server(c).Server = "https://hub:hunter2@worker:port" },
			kind:   invalid, want: `clusters["worker"].cluster.server: is not a URL with a host; ` + address,
		},
		"ServerScheme": {
			reason: "Only https has a meaning.",
			change: func(c *config) { server(c).Server = "ftp://worker.example.com" },
			kind:   invalid, want: `clusters["worker"].cluster.server: has a scheme other than https; ` + address,
		},
		"ServerQuery": {
			reason: "It would end up in every request.",
			change: func(c *config) { server(c).Server = "https://worker.example.com?dryRun=All" },
			kind:   invalid, want: `clusters["worker"].cluster.server: has a query or fragment; ` + address,
		},
		"ServerHost": {
			reason: "Neither address nor name.",
			change: func(c *config) { server(c).Server = "https://work_er!" },
			kind:   invalid,
			want:   `clusters["worker"].cluster.server: has a host that is neither a DNS name nor an IP address; ` + address,
		},
		"ServerMistypedAddress": {
			reason: "A resolver would take it for a name.",
			change: func(c *config) { server(c).Server = "https://10.0.0.256:6443" },
			kind:   invalid,
			want:   `clusters["worker"].cluster.server: has a host that is neither a DNS name nor an IP address; ` + address,
		},
		"ServerPort": {
			reason: "Port 0 means any port.",
			change: func(c *config) { server(c).Server = "https://worker.example.com:0" },
			kind:   invalid, want: `clusters["worker"].cluster.server: has a port that is not between 1 and 65535; ` + address,
		},
		"TLSServerName": {
			reason: "No certificate can match it.",
			change: func(c *config) { server(c).TLSServerName = "work er" },
			kind:   invalid,
			want: `clusters["worker"].cluster.tls-server-name: is neither a DNS name nor an IP address; ` +
				`name the host in the server's certificate`,
		},
		"CANotPEM": {
			reason: "An empty pool would refuse every server with a riddle.",
			change: func(c *config) { server(c).CertificateAuthorityData = []byte("not PEM") },
			kind:   invalid,
			want: `clusters["worker"].cluster.certificate-authority-data: has no certificate in PEM form; ` +
				`give base64 of certificates in PEM form`,
		},
		"CABroken": {
			reason: "PEM around something else.",
			change: func(c *config) {
				server(c).CertificateAuthorityData = []byte("-----BEGIN CERTIFICATE-----\nbm90IGEgY2VydA==\n-----END CERTIFICATE-----\n")
			},
			kind: invalid,
			want: `clusters["worker"].cluster.certificate-authority-data: has a certificate that cannot be parsed; ` +
				`give base64 of certificates in PEM form`,
		},
		"CAExpired": {
			reason: "No server can be verified by it.",
			change: func(c *config) { server(c).CertificateAuthorityData = expiredCert },
			kind:   invalid,
			want: `clusters["worker"].cluster.certificate-authority-data: has expired on 2026-03-01; ` +
				`give the certificate authority that the worker uses now`,
		},
		"NoContext": {
			reason: "Nothing says which server and user belong together.",
			change: func(c *config) { c.Contexts, c.CurrentContext = nil, "" },
			kind:   invalid, want: `contexts: none names a cluster and a user that are there; give one context with both`,
		},
		"CurrentContextMissing": {
			reason: "Another context is not what the admin means.",
			change: func(c *config) { c.CurrentContext = "gone" },
			kind:   invalid,
			want:   `current-context: names a context that is not there; name the worker's context, or leave it out`,
		},
		"CurrentContextUnusable": {
			reason: "The context's user is not in the file.",
			change: func(c *config) { c.Contexts[0].Context.AuthInfo = "gone" },
			kind:   invalid,
			want:   `contexts["worker"]: names a cluster or a user that is not there; give one context with both`,
		},
		"SameNames": {
			reason: "Which of them is meant is a matter of who reads it.",
			change: func(c *config) { c.AuthInfos = append(c.AuthInfos, c.AuthInfos[0]) },
			kind:   invalid, want: `users["hub"]: is there more than once; give every user a name of its own`,
		},
		"NoCredentials": {
			reason: "We would be system:anonymous.",
			change: func(c *config) { *user(c) = clientcmdv1.AuthInfo{} },
			kind:   invalid,
			want:   `users["hub"].user: has no credentials; give a token, or client-certificate-data and client-key-data`,
		},
		"TokenWithLineBreak": {
			reason: "net/http would refuse the header, and quote it.",
			change: func(c *config) { user(c).Token = "secret\n" },
			kind:   invalid,
			want: `users["hub"].user.token: has a space, a line break or another character that no token has; ` +
				`give the token alone`,
		},
		"TokenExpired": {
			reason: "The token says so itself.",
			change: func(c *config) { user(c).Token = newJWT(`{"exp":1767225600}`) },
			kind:   invalid, want: `users["hub"].user.token: has expired on 2026-01-01; give a new one`,
		},
		"CertificateExpired": {
			reason: "The certificate says so itself.",
			change: func(c *config) { user(c).ClientCertificateData, user(c).ClientKeyData = expiredCert, expiredKey },
			kind:   invalid,
			want:   `users["hub"].user.client-certificate-data: has expired on 2026-03-01; give a new certificate and key`,
		},
		"KeyMissing": {
			reason: "client-go would go on as anonymous.",
			change: func(c *config) { user(c).ClientCertificateData = cert },
			kind:   invalid,
			want:   `users["hub"].user.client-key-data: is missing; give the key that belongs to client-certificate-data`,
		},
		"CertificateMissing": {
			reason: "As for the key.",
			change: func(c *config) { user(c).ClientKeyData = key },
			kind:   invalid,
			want:   `users["hub"].user.client-certificate-data: is missing; give the certificate that belongs to client-key-data`,
		},
		"KeyOfAnother": {
			reason: "A typical slip at rotation.",
			change: func(c *config) { user(c).ClientCertificateData, user(c).ClientKeyData = cert, otherKey },
			kind:   invalid,
			want:   `users["hub"].user.client-key-data: does not belong to client-certificate-data; give the certificate and its own key`,
		},
		"KeyNotPEM": {
			reason: "The text of the key must not be in the error.",
			change: func(c *config) {
				user(c).ClientCertificateData, user(c).ClientKeyData = cert, []byte("hunter2")
			},
			kind: invalid,
			want: `users["hub"].user.client-key-data: is not an unencrypted private key in PEM form; ` +
				`give the key that belongs to client-certificate-data`,
		},
		"Kind": {
			reason: "A Secret's manifest instead of what is in it.",
			change: func(c *config) { c.Kind = "Secret" },
			kind:   invalid, want: `kind: is not Config; give a kubeconfig`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config := newKubeconfig(t)
			tc.change(config)
			for format, data := range map[string][]byte{"YAML": toYAML(t, config), "JSON": toJSON(t, config)} {
				credentials, err := Parse(data, now)
				if err == nil || credentials != nil {
					t.Fatalf("%s\nParse(%s) = %v, %v, want an error and no credentials", tc.reason, format, credentials, err)
				}
				check.Diff(t, tc.want, err.Error(), fmt.Sprintf("%s\nerror of Parse(%s)", tc.reason, format))
				check.Diff(t, tc.kind, ReasonOf(err), fmt.Sprintf("%s\nReasonOf(error of %s)", tc.reason, format))
			}
		})
	}
}

func TestParseMalformed(t *testing.T) {
	const give = `give the output of "kubectl config view --raw --minify --flatten"`
	cases := map[string]struct {
		reason string
		data   string
		want   string
	}{
		"NotYAML": {
			reason: "The YAML parser's words can quote the input.",
			data:   "token: hunter2\n\t*hunter2", want: "kubeconfig: is neither YAML nor JSON; " + give,
		},
		"Scalar": {
			reason: "A token instead of a kubeconfig.",
			data:   "hunter2", want: `kubeconfig: has the wrong type; give what "kubectl config view --raw" prints there`,
		},
		"WrongType": {
			reason: "The JSON decoder names the field, and that is passed on.",
			data:   "users: [{name: hub, user: {token: [hunter2]}}]",
			want:   `users.user.token: has the wrong type; give what "kubectl config view --raw" prints there`,
		},
		"Empty": {
			reason: "Nothing is there.",
			data:   "", want: "contexts: none names a cluster and a user that are there; give one context with both",
		},
		"TooLarge": {
			reason: "No kubeconfig is that large, and parsing it would cost.",
			data:   strings.Repeat("#", maxSize+1), want: "kubeconfig: is larger than 1 MiB; " + give,
		},
		"NotBase64": {
			reason: "A fault in one certificate hides no other fault.",
			data:   `{"clusters":[{"name":"w","cluster":{"server":"https://w","certificate-authority-data":"hunter2!"}}]}`,
			want: "clusters[\"w\"].cluster.certificate-authority-data: is not base64; give base64 of PEM\n" +
				"contexts: none names a cluster and a user that are there; give one context with both",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.data), now)
			if err == nil {
				t.Fatalf("%s\nParse accepted it", tc.reason)
			}
			check.Diff(t, tc.want, err.Error(), tc.reason)
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s\nerrors.Is(err, ErrInvalid) = false", tc.reason)
			}
		})
	}
}

// TestParseAllFaultsAtOnce checks that an admin sees all faults of a kubeconfig at once.
func TestParseAllFaultsAtOnce(t *testing.T) {
	config := newKubeconfig(t)
	cert, _ := newPair(t, now.Add(-time.Hour))
	_, otherKey := newPair(t, now.Add(time.Hour))
	server, user := &config.Clusters[0].Cluster, &config.AuthInfos[0].AuthInfo
	*server = clientcmdv1.Cluster{
		Server: "http://hub:hunter2@work_er:0?a=b", TLSServerName: "!", InsecureSkipTLSVerify: true, ProxyURL: "http://proxy",
		CertificateAuthority: "ca.crt", CertificateAuthorityData: []byte("hunter2"),
	}
	*user = clientcmdv1.AuthInfo{
		Exec: &clientcmdv1.ExecConfig{}, AuthProvider: &clientcmdv1.AuthProviderConfig{}, TokenFile: "t", Token: "hunter2 ",
		ClientCertificate: "c", ClientKey: "k", ClientCertificateData: cert, ClientKeyData: otherKey,
		Username: "u", Password: "hunter2", Impersonate: "a", ImpersonateUID: "b", ImpersonateGroups: []string{"c"},
		ImpersonateUserExtra: map[string][]string{"d": nil},
	}
	config.Contexts = append(config.Contexts, clientcmdv1.NamedContext{Name: "b", Context: config.Contexts[0].Context})
	config.CurrentContext, config.Kind, config.APIVersion = "gone", "List", "v2"

	_, err := Parse(toYAML(t, config), now)
	if err == nil {
		t.Fatal("Parse accepted it")
	}
	var paths []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		path, _, _ := strings.Cut(line, ":")
		paths = append(paths, path)
	}
	want := []string{
		"apiVersion",
		`clusters["worker"].cluster.certificate-authority`, `clusters["worker"].cluster.certificate-authority-data`,
		`clusters["worker"].cluster.insecure-skip-tls-verify`, `clusters["worker"].cluster.proxy-url`,
		`clusters["worker"].cluster.server`, `clusters["worker"].cluster.server`, `clusters["worker"].cluster.server`,
		`clusters["worker"].cluster.server`, `clusters["worker"].cluster.server`,
		`clusters["worker"].cluster.tls-server-name`,
		"contexts", "current-context", "kind",
		`users["hub"].user.as`, `users["hub"].user.as-groups`, `users["hub"].user.as-uid`, `users["hub"].user.as-user-extra`,
		`users["hub"].user.auth-provider`, `users["hub"].user.client-certificate`, `users["hub"].user.client-certificate-data`,
		`users["hub"].user.client-key`, `users["hub"].user.client-key-data`, `users["hub"].user.exec`,
		`users["hub"].user.password`, `users["hub"].user.token`, `users["hub"].user.tokenFile`, `users["hub"].user.username`,
	}
	check.Diff(t, want, paths, "paths of the lines")
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error has a secret in it:\n%v", err)
	}
	if !errors.Is(err, ErrInsecure) || !errors.Is(err, ErrInvalid) {
		t.Error("the error is not both insecure and invalid")
	}
	check.Diff(t, v1alpha1.ReasonInsecureKubeconfig, ReasonOf(err), "ReasonOf")
	joined, typed := (*multierror.Error)(nil), (*Error)(nil)
	if !errors.As(err, &joined) || !errors.As(err, &typed) || joined.Len() != len(want) || len(typed.Faults()) != len(want) {
		t.Errorf("the error is no multierror with a fault for each line")
	}
	if _, again := Parse(toJSON(t, config), now); again.Error() != err.Error() {
		t.Errorf("another order in the input gives another text:\n%v\n---\n%v", err, again)
	}
}

func TestParseAccepts(t *testing.T) {
	cert, key := newPair(t, now.Add(time.Hour))
	type config = clientcmdv1.Config
	cases := map[string]struct {
		reason  string
		change  func(*config)
		want    func(c *config) *rest.Config
		expires time.Time
	}{
		"Token": {
			reason: "The form that \"kubectl trainyard join\" writes.",
			change: func(*config) {},
			want: func(c *config) *rest.Config {
				return &rest.Config{
					Host: "https://worker.example.com:6443", BearerToken: "secret-token",
					TLSClientConfig: rest.TLSClientConfig{CAData: c.Clusters[0].Cluster.CertificateAuthorityData},
				}
			},
		},
		"JWT": {
			reason:  "Its end is known.",
			change:  func(c *config) { c.AuthInfos[0].AuthInfo.Token = newJWT(`{"exp":1900000000}`) },
			expires: time.Unix(1900000000, 0),
		},
		"OddJWT": {
			reason: "A token that only looks like a JWT is the worker's business.",
			change: func(c *config) { c.AuthInfos[0].AuthInfo.Token = newJWT(`{"exp":"soon"}`) },
		},
		"Certificate": {
			reason: "A client certificate without a token.",
			change: func(c *config) {
				c.AuthInfos[0].AuthInfo = clientcmdv1.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
			},
			want: func(c *config) *rest.Config {
				return &rest.Config{
					Host: "https://worker.example.com:6443",
					TLSClientConfig: rest.TLSClientConfig{
						CAData: c.Clusters[0].Cluster.CertificateAuthorityData, CertData: cert, KeyData: key,
					},
				}
			},
			expires: now.Add(time.Hour),
		},
		"Earliest": {
			reason: "Of token and certificate the earlier end counts.",
			change: func(c *config) {
				c.AuthInfos[0].AuthInfo = clientcmdv1.AuthInfo{
					Token: newJWT(`{"exp":1900000000}`), ClientCertificateData: cert, ClientKeyData: key,
				}
			},
			expires: now.Add(time.Hour),
		},
		"NoCurrentContext": {
			reason: "There is only one context that can be meant.",
			change: func(c *config) { c.CurrentContext = "" },
		},
		"UnusableContextBeside": {
			reason: "A context without a cluster cannot be meant.",
			change: func(c *config) {
				c.CurrentContext = ""
				c.Contexts = append(c.Contexts, clientcmdv1.NamedContext{Name: "left over"})
			},
		},
		"PathAndAddress": {
			reason: "Proxies such as Rancher's have the cluster in the path; IPv6 has brackets.",
			change: func(c *config) { c.Clusters[0].Cluster.Server = "https://[fd00::1]:8443/k8s/clusters/c-1" },
		},
		"PublicCA": {
			reason: "Without certificate-authority-data the system's authorities verify the server.",
			change: func(c *config) { c.Clusters[0].Cluster.CertificateAuthorityData = nil },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config := newKubeconfig(t)
			tc.change(config)
			credentials, err := Parse(toYAML(t, config), now)
			if err != nil {
				t.Fatalf("%s\n%v", tc.reason, err)
			}
			if tc.want != nil {
				check.Diff(t, tc.want(config), credentials.Config, tc.reason)
			}
			if !credentials.Expires.Equal(tc.expires) {
				t.Errorf("%s\nExpires = %v, want %v", tc.reason, credentials.Expires, tc.expires)
			}
		})
	}
}

func TestFingerprint(t *testing.T) {
	parse := func(config *clientcmdv1.Config) string {
		credentials, err := Parse(toYAML(t, config), now)
		check.Must(t, err)
		return credentials.Fingerprint
	}
	config := newKubeconfig(t)
	before := parse(config)
	config.Contexts[0].Name, config.CurrentContext = "renamed", "renamed"
	if after := parse(config); after != before {
		t.Errorf("a renamed context changes the fingerprint from %s to %s", before, after)
	}
	changes := map[string]func(c *clientcmdv1.Config){
		"server":          func(c *clientcmdv1.Config) { c.Clusters[0].Cluster.Server += "0" },
		"tls-server-name": func(c *clientcmdv1.Config) { c.Clusters[0].Cluster.TLSServerName = "a" },
		"ca":              func(c *clientcmdv1.Config) { c.Clusters[0].Cluster.CertificateAuthorityData = nil },
		"token":           func(c *clientcmdv1.Config) { c.AuthInfos[0].AuthInfo.Token += "0" },
		"compression":     func(c *clientcmdv1.Config) { c.Clusters[0].Cluster.DisableCompression = true },
		"client certificate": func(c *clientcmdv1.Config) {
			c.AuthInfos[0].AuthInfo.ClientCertificateData, c.AuthInfos[0].AuthInfo.ClientKeyData = newPair(t, now.Add(time.Hour))
		},
	}
	for name, change := range changes {
		changed := config.DeepCopy()
		change(changed)
		if parse(changed) == before {
			t.Errorf("another %s does not change the fingerprint", name)
		}
	}
}

// FuzzParse checks that Parse never panics and never returns insecure credentials.
func FuzzParse(f *testing.F) {
	good := newKubeconfig(f)
	f.Add(toYAML(f, good))
	f.Add(toJSON(f, good))
	bad := good.DeepCopy()
	bad.Clusters[0].Cluster.InsecureSkipTLSVerify = true
	bad.Clusters[0].Cluster.Server = "http://user@worker:80?x#y"
	bad.AuthInfos[0].AuthInfo = clientcmdv1.AuthInfo{
		Exec: &clientcmdv1.ExecConfig{Command: "x"}, TokenFile: "/x", ClientKey: "/x", ClientCertificate: "/x", Username: "x",
		Impersonate: "x", AuthProvider: &clientcmdv1.AuthProviderConfig{Name: "x"}, Token: newJWT(`{"exp":1}`),
	}
	f.Add(toYAML(f, bad))
	cert, key := newPair(f, now.Add(time.Hour))
	certified := good.DeepCopy()
	certified.AuthInfos[0].AuthInfo = clientcmdv1.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	f.Add(toJSON(f, certified))
	f.Add([]byte(`{"Users":[{"NAME":"hub","User":{"EXEC":{},"Token":"x"}}]}`))
	f.Add([]byte("a: &a [*a]"))

	f.Fuzz(func(t *testing.T, data []byte) {
		credentials, err := Parse(data, now)
		if err != nil {
			if credentials != nil {
				t.Fatal("an error and credentials")
			}
			if ReasonOf(err) == "" || err.Error() == "" {
				t.Fatalf("an error without a reason: %q", err)
			}
			return
		}
		c := credentials.Config
		u, err := url.Parse(c.Host)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
			t.Errorf("host %q", c.Host)
		}
		if c.Insecure || c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" || c.BearerTokenFile != "" || c.Username != "" ||
			c.Password != "" || c.ExecProvider != nil || c.AuthProvider != nil || c.Proxy != nil || c.Impersonate.UserName != "" {
			t.Error("an insecure config")
		}
		if c.BearerToken == "" && (len(c.CertData) == 0 || len(c.KeyData) == 0) {
			t.Error("no credentials")
		}
		check.Equal(t, 32, len(credentials.Fingerprint), "fingerprint %q", credentials.Fingerprint)
		if !credentials.Expires.IsZero() && credentials.Expires.Before(now) {
			t.Error("expired credentials")
		}
	})
}
