// What a PyTorch without CUDA asks of CUDA by itself, beside its operations: whether it is there,
// and how autograd orders work, where all is done at once (modules/simulated_cuda.py).
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

static Device gpu() {
    return Device(c10::DeviceType::CUDA, 0);
}

static Stream stream() {
    return Stream(Stream::DEFAULT, gpu());
}

namespace at {
struct CUDAHooks : CUDAHooksInterface {
    explicit CUDAHooks(CUDAHooksArgs) {}
    void init() const override {}
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasCUDA() const override { return true; }
    bool hasPrimaryContext(DeviceIndex) const override { return true; }
    DeviceIndex deviceCount() const override { return 1; }
    DeviceIndex getCurrentDevice() const override { return 0; }
    Allocator *getPinnedMemoryAllocator() const override { return c10::GetDefaultCPUAllocator(); }
    bool isPinnedPtr(const void *) const override { return false; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
} // namespace at

namespace c10::impl {
struct SimulatedGuard : NoOpDeviceGuardImpl<DeviceType::CUDA> {
    Device exchangeDevice(Device) const override { return gpu(); }
    Device getDevice() const override { return gpu(); }
    Stream getStream(Device) const noexcept override { return stream(); }
    Stream getDefaultStream(Device) const override { return stream(); }
    Stream getNewStream(Device, int) const override { return stream(); }
    Stream exchangeStream(Stream) const noexcept override { return stream(); }
    void record(void **, const Stream &, const DeviceIndex, const EventFlag) const override {}
    void block(void *, const Stream &) const override {}
    bool queryEvent(void *) const override { return true; }
    void synchronizeEvent(void *) const override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, SimulatedGuard)
} // namespace c10::impl
