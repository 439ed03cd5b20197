// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/gateway"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/multikueue"
)

const kubeconfigExamples = `  # From now on kubectl shows the pods of your jobs, and their logs, wherever they run
  kubectl trainyard kubeconfig > hub.kubeconfig
  export KUBECONFIG=$PWD/hub.kubeconfig

  # With a token of a service account, if you log in to the hub with a certificate
  kubectl trainyard kubeconfig --token "$(kubectl create token researcher --namespace vision --duration 8h)" > hub.kubeconfig

  # To try it without an address for users, beside: kubectl port-forward --namespace trainyard-system service/trainyard-gateway 9444:443
  kubectl trainyard kubeconfig --url https://localhost:9444 --tls-server-name trainyard-gateway.trainyard-system.svc > hub.kubeconfig`

type kubeconfigOptions struct {
	streams
	factory          *Factory
	managerNamespace string
	// url, authority and serverName are given if they are not the published ones.
	url, authority, serverName string
}

func newKubeconfig(f *Factory, s streams) *cobra.Command {
	o := kubeconfigOptions{streams: s, factory: f}
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig that leads through the hub's gateway",
		Long: `Print a kubeconfig that leads through the gateway of the hub, which shows the pods, logs and Events of jobs on workers.

The kubeconfig has your present credentials and namespace. The gateway takes tokens, also those of exec plugins and auth providers, and no
client certificates: with a certificate, give a token with --token. The kubeconfig is as secret as the token in it.

The address and the authority of the gateway are in ConfigMap trainyard-gateway of the manager's namespace, which everybody who can log in
to the hub may read. In this command --certificate-authority and --tls-server-name are the gateway's.`,
		Example:           kubeconfigExamples,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.url, "url", "", "the `URL` of the gateway, that of the ConfigMap if it is not given")
	flags.StringVar(&o.authority, "certificate-authority", "", "`file` with the authority of the gateway's certificate, that of the ConfigMap if it is not given")
	flags.StringVar(&o.serverName, "tls-server-name", "", "the `name` in the gateway's certificate, if it is not the host of the URL")
	addManagerNamespace(flags, &o.managerNamespace)
	return cmd
}

func addManagerNamespace(flags *pflag.FlagSet, namespace *string) {
	flags.StringVar(namespace, "manager-namespace", multikueue.DefaultNamespace, "`namespace` of Trainyard's manager on the hub, where the address of its gateway is")
}

func (o *kubeconfigOptions) run(ctx context.Context) error {
	published, err := o.published(ctx)
	if err != nil {
		return err
	}
	config, err := o.factory.flags.ToRESTConfig()
	if err != nil {
		return err
	}
	through, err := published.Reach(config)
	if err != nil {
		return err
	}
	namespace, err := o.factory.Namespace()
	if err != nil {
		return err
	}
	text, err := clientcmd.Write(*gateway.Kubeconfig(through, o.factory.Context(), namespace))
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if _, err := o.raw.Out.Write(text); err != nil {
		return err
	}
	if published.OnlyInCluster() {
		return o.remark("note: only pods of the hub reach %s: for others, an admin sets --gateway-url of the manager (hub.gateway.url of the chart)",
			published.URL)
	}
	return nil
}

// published returns how to reach the gateway. What the flags say counts more than the ConfigMap.
func (o *kubeconfigOptions) published(ctx context.Context) (*gateway.Published, error) {
	published, err := o.factory.gateway(ctx, o.managerNamespace)
	if none := (*noGatewayError)(nil); errors.As(err, &none) && o.url != "" {
		published, err = &gateway.Published{}, nil
	}
	if err != nil {
		return nil, err
	}
	if o.url != "" {
		published.URL = o.url
	}
	if o.authority != "" {
		if published.Authority, err = os.ReadFile(o.authority); err != nil {
			return nil, fmt.Errorf("read --certificate-authority: %w", err)
		}
	}
	published.ServerName = o.serverName
	return published, published.Check()
}

// noGatewayError says that the hub publishes no gateway.
type noGatewayError struct {
	namespace string
	// why says it in the manager's words, empty if there is no ConfigMap for the user.
	why string
}

// Error says what an admin has to turn on.
func (e *noGatewayError) Error() string {
	why := e.why
	if why == "" {
		why = "it does not exist, or you may not read it"
	}
	return fmt.Sprintf("the hub publishes no gateway in ConfigMap %q of namespace %q (%s): an admin turns it on with --gateway-bind-address of the manager "+
		"and config/gateway (hub.gateway.enabled of the chart); if the manager is in another namespace, name it with --manager-namespace",
		gateway.ConfigMap, e.namespace, why)
}

// gateway returns the gateway that the hub publishes, or a noGatewayError.
func (f *Factory) gateway(ctx context.Context, managerNamespace string) (*gateway.Published, error) {
	h, err := f.Hub()
	if err != nil {
		return nil, err
	}
	data, err := h.ConfigMap(ctx, types.NamespacedName{Namespace: managerNamespace, Name: gateway.ConfigMap})
	switch {
	case err != nil:
		return nil, err
	case data == nil:
		return nil, &noGatewayError{namespace: managerNamespace}
	}
	published, err := gateway.Parse(data)
	if err != nil {
		return nil, &noGatewayError{namespace: managerNamespace, why: err.Error()}
	}
	return published, nil
}
