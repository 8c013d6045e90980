// Lets a torch without CUDA compute gradients of fake tensors that are on "cuda": autograd asks the
// device for its streams and events. Loaded before torch; see tests/gpu/fake_card.py.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace c10::impl {

struct FakeGuard : NoOpDeviceGuardImpl<DeviceType::CUDA> {
  static Device card() { return Device(DeviceType::CUDA, 0); }
  static Stream stream() { return Stream(Stream::DEFAULT, card()); }
  Device exchangeDevice(Device) const override { return card(); }
  Device getDevice() const override { return card(); }
  Stream getStream(Device) const noexcept override { return stream(); }
  Stream getDefaultStream(Device) const override { return stream(); }
  Stream exchangeStream(Stream) const noexcept override { return stream(); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, FakeGuard)

}  // namespace c10::impl

namespace at {

// torch looks its hooks up by this name.
struct CUDAHooks : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return false; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  Generator getNewGenerator(DeviceIndex) const override {
    return detail::createCPUGenerator();
  }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at
