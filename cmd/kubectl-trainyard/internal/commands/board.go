// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/board"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/joblogs"
	"github.com/trainyard/trainyard/internal/hub"
)

const boardExamples = `  # Look at the fleet, the queue and the jobs in the browser
  kubectl trainyard board

  # Through ssh: on the other machine, and then open the printed address here
  ssh -L 8080:127.0.0.1:8080 hub.example.com kubectl trainyard board --port 8080`

const (
	// headerTimeout is how long a browser may take for the headers of a request.
	headerTimeout = 10 * time.Second
	// rightsFor is how long an answer about the user's rights holds.
	rightsFor = 10 * time.Second
	// mostRights is how many such answers are kept.
	mostRights = 1000
)

type boardOptions struct {
	jobOptions
	port int
	open bool
}

func newBoard(f *Factory, s streams) *cobra.Command {
	o := boardOptions{jobOptions: jobOptions{streams: s, factory: f}}
	cmd := &cobra.Command{
		Use:   "board",
		Short: "Show the fleet, the queue and the jobs in the browser",
		Long: `Show the workers and their nodes, who waits and why, the jobs with their logs, and what a new job would do, in the browser. The page
changes with the hub. It is read only.

It is served on this machine only, until Ctrl-C, and reads the hub with your rights. Without the rights to list and watch WorkerClusters
there is no page of workers, and without those for Dispatches and TrainJobs of all namespaces it shows those of one namespace. The
ClusterRole trainyard-operator has all of them.

The printed address has a secret that works once. After it was used, the next one is printed, for another browser.`,
		Example:           boardExamples,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().IntVar(&o.port, "port", 0, "`port` of this machine, any free one if it is 0")
	cmd.Flags().BoolVar(&o.open, "open", hasBrowser(), "open the browser")
	addManagerNamespace(cmd.Flags(), &o.managerNamespace)
	return cmd
}

func (o *boardOptions) run(ctx context.Context) error {
	user, err := o.newUser()
	if err != nil {
		return err
	}
	namespace, err := o.factory.Namespace()
	if err != nil {
		return err
	}
	watched, err := board.Watchable(ctx, user, namespace)
	if err != nil {
		return user.hub.Hint(err)
	}
	caches, err := o.caches(user.hub, watched)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _ = caches.Start(ctx) }() // It has no error.
	return o.serve(ctx, board.New(ctx, board.Options{
		Caches: caches, Watched: watched, Namespace: namespace, Context: o.contextToCopy(), Clock: clock.RealClock{},
		Caller: func(http.ResponseWriter, *http.Request) board.Caller { return user },
	}))
}

func (o *boardOptions) serve(ctx context.Context, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("listen at --port: %w", err)
	}
	var door *board.Door
	tell := func(format string) { fmt.Fprintf(o.Out, format+"\n", door.Address(listener.Addr().String())) }
	door = board.NewDoor(handler, func() { tell("Another browser can open it at %s") })
	server := &http.Server{Handler: door, ReadHeaderTimeout: headerTimeout, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	address := door.Address(listener.Addr().String())
	tell("The board is at %s")
	if err := o.remark("The address works once. Ctrl-C ends the board."); err != nil {
		return err
	}
	if o.open && openBrowser(ctx, address) != nil {
		if err := o.remark("note: no browser could be opened"); err != nil {
			return err
		}
	}
	if err := server.Serve(listener); ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the board: %w", err)
	}
	return nil
}

// caches watch what the user may watch, without what no page shows.
func (o *boardOptions) caches(h *hub.Hub, watched board.Watched) (ctrlcache.Cache, error) {
	config, err := o.factory.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	options := ctrlcache.Options{
		Scheme: h.Scheme(), Mapper: h.RESTMapper(), DefaultTransform: ctrlcache.TransformStripManagedFields(),
		ByObject: map[client.Object]ctrlcache.ByObject{trainjobs.New(): {Transform: stripJob}, &v1alpha1.Dispatch{}: {Transform: stripDispatch}},
	}
	if watched.Namespace != "" {
		options.DefaultNamespaces = map[string]ctrlcache.Config{watched.Namespace: {}}
	}
	caches, err := ctrlcache.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("make caches: %w", err)
	}
	return caches, nil
}

// stripJob keeps what says how a TrainJob is.
func stripJob(object any) (any, error) {
	if job, ok := object.(*unstructured.Unstructured); ok {
		trainjobs.StripMetadata(job)
		job.SetAnnotations(nil)
		spec, _ := job.Object["spec"].(map[string]any)
		status, _ := job.Object["status"].(map[string]any)
		job.Object["spec"], job.Object["status"] = trainjobs.PickFields(spec, "managedBy", "suspend"), trainjobs.PickFields(status, "conditions")
	}
	return object, nil
}

// stripDispatch drops from finished Dispatches, of which there can be very many, what no list shows.
func stripDispatch(object any) (any, error) {
	if d, ok := object.(*v1alpha1.Dispatch); ok {
		d.ManagedFields = nil
		if d.IsFinished() {
			d.Status.Explanation, d.Status.Refusals, d.Spec.Dependencies = nil, nil, nil
		}
	}
	return object, nil
}

// contextToCopy is the flag with which commands reach the same hub, as a shell takes it.
func (o *boardOptions) contextToCopy() string {
	name := o.factory.contextFlag()
	switch {
	case name == "":
		return ""
	case regexp.MustCompile(`^[A-Za-z0-9@%_+=:,./-]+$`).MatchString(name):
		return "--context=" + name
	}
	return "--context='" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// boardUser is the user of the plugin, the only caller of the board.
type boardUser struct {
	options    *boardOptions
	hub        *hub.Hub
	kubernetes kubernetes.Interface
	answers    *utilcache.LRUExpireCache
}

func (o *boardOptions) newUser() (*boardUser, error) {
	h, err := o.factory.Hub()
	if err != nil {
		return nil, err
	}
	client, err := o.factory.Kubernetes()
	if err != nil {
		return nil, err
	}
	return &boardUser{options: o, hub: h, kubernetes: client, answers: utilcache.NewLRUExpireCache(mostRights)}, nil
}

// Allows implements board.Caller.
func (u *boardUser) Allows(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
	if known, ok := u.answers.Get(attributes); ok {
		return known.(bool), nil
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
	answer, err := u.kubernetes.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	u.answers.Add(attributes, answer.Status.Allowed, rightsFor)
	return answer.Status.Allowed, nil
}

// Hub implements board.Caller.
func (u *boardUser) Hub() (*hub.Hub, error) { return u.hub, nil }

// Pods implements board.Caller. It finds the pods as the logs command does.
func (u *boardUser) Pods(ctx context.Context, job types.NamespacedName) (*board.Pods, error) {
	clients, err := u.options.factory.jobLogs(u.options.managerNamespace, io.Discard)
	if err != nil {
		return nil, err
	}
	place, there, err := find(ctx, clients, joblogs.Options{Job: job, Context: u.options.factory.Context()})
	if err != nil {
		return nil, err
	}
	return &board.Pods{Client: there, Selector: place.Selector, WhyNone: place.WhyNone()}, nil
}

// Enter implements board.Caller. The browser limits what it opens.
func (u *boardUser) Enter(context.Context) (leave func(), ok bool) { return func() {}, true }

// hasBrowser is true if this process can probably open a browser that its user sees.
func hasBrowser() bool {
	return runtime.GOOS == "darwin" || runtime.GOOS == "windows" || os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""
}

func openBrowser(ctx context.Context, address string) error {
	command := map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}[runtime.GOOS]
	if command == nil {
		command = []string{"xdg-open"}
	}
	opener := exec.CommandContext(ctx, command[0], append(command[1:], address)...)
	if err := opener.Start(); err != nil {
		return err
	}
	go func() { _ = opener.Wait() }() // The board serves whether or not it succeeds, and the address is printed.
	return nil
}
