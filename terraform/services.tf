# The APIs. What needs one takes its project from there, so that it waits until the API is on.

locals {
  services = toset([
    "artifactregistry.googleapis.com",
    "cloudbuild.googleapis.com",
    "cloudfunctions.googleapis.com",
    "cloudkms.googleapis.com",
    "cloudscheduler.googleapis.com",
    "firebaserules.googleapis.com",
    "firestore.googleapis.com",
    "gmail.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "pubsub.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "storage.googleapis.com",
  ])

  project_with = { for api, s in google_project_service.api : trimsuffix(api, ".googleapis.com") => s.project }
}

# By this one Terraform reads the project itself, so it comes first, and alone: whatever else is turned on
# later, the project's number stays known.
resource "google_project_service" "resource_manager" {
  project            = var.project
  service            = "cloudresourcemanager.googleapis.com"
  disable_on_destroy = false
}

resource "google_project_service" "api" {
  for_each = local.services

  project = google_project_service.resource_manager.project
  service = each.key

  # Others in the project may use it too, and an API that is off takes its data's functions with it.
  disable_on_destroy = false
}

data "google_project" "this" {
  project_id = var.project

  depends_on = [google_project_service.resource_manager]
}
