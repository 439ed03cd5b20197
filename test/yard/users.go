// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// User is somebody with a role in one namespace of the hub, who reaches it through the gateway.
type User struct {
	Name, Token string
	// Kubeconfig is the path of a file.
	Kubeconfig string
	// yard has the programs and a directory for caches.
	yard *Yard
}

// NewUser gives a ClusterRole in a namespace to a new service account, and writes its kubeconfig.
func (y *Yard) NewUser(ctx context.Context, namespace, name, role string) (*User, error) {
	hub, err := NewClient(y.Hub)
	if err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	for _, object := range []client.Object{account, binding} {
		if err := hub.Create(ctx, object); err != nil {
			return nil, err
		}
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	if err := hub.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, err
	}
	return y.UserAt(name, y.GatewayAddress(), request.Status.Token, namespace)
}

// UserAt returns a user who reaches a gateway at an address.
func (y *Yard) UserAt(name, address, token, namespace string) (*User, error) {
	u := &User{Name: name, Token: token, Kubeconfig: filepath.Join(y.Hub.Dir, name+".kubeconfig"), yard: y}
	return u, y.gatewayKubeconfig(u.Kubeconfig, address, token, namespace)
}

// Result is what a command has printed, and its exit code.
type Result struct {
	Out, Err string
	Code     int
}

// String shows the result in a failure.
func (r Result) String() string { return fmt.Sprintf("code %d\n%s%s", r.Code, r.Out, r.Err) }

// Kubectl runs kubectl as the user, through the gateway.
func (u *User) Kubectl(ctx context.Context, args ...string) Result {
	return ResultOf(u.Command(ctx, args...))
}

// Command returns a command that runs kubectl as the user.
func (u *User) Command(ctx context.Context, args ...string) *exec.Cmd {
	return u.yard.KubectlCommand(ctx, u.Kubeconfig, args...)
}

// KubectlCommand returns a command that runs kubectl with a kubeconfig.
func (y *Yard) KubectlCommand(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	command := y.command(ctx, "kubectl", append([]string{"--kubeconfig", kubeconfig}, args...)...)
	command.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(y.Hub.Dir, "cache"))
	return command
}

// ResultOf runs a command.
func ResultOf(command *exec.Cmd) Result {
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	r := Result{Out: out.String(), Err: errs.String()}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		r.Code = exit.ExitCode()
	} else if err != nil {
		r.Code = 1
		r.Err += err.Error()
	}
	return r
}
