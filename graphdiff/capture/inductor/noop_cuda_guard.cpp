// A device guard for CUDA that does nothing, for a torch with no CUDA or no GPU: fake CUDA tensors pass through the
// dispatcher, which asks for a guard of their device. No kernel ever runs on them.
#include <c10/core/impl/DeviceGuardImplInterface.h>

static c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> noop_guard;

extern "C" void graphdiff_install_noop_cuda_guard() {
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)].store(&noop_guard);
}
